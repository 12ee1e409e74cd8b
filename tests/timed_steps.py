"""What was measured of steps whose times are given."""

from __future__ import annotations

from gradtui.protocol.step_times import LoaderSettings, PartTime, StepPart, StepTimesMeasured


def times(
    steps: int = 100, unsampled: int = 80, *, with_evaluation: int = 0, workers: int | None = 0, sampling: float = 0.0,
    **milliseconds: float,
) -> StepTimesMeasured:  # fmt: skip
    """Steps of so many milliseconds of each part, the last ones a quarter more than the first ones.

    A sampled step takes `sampling` more for its own code.
    """
    parts = []
    for part in StepPart:
        each = milliseconds.get(part.value, 0.0) / 1e3
        extra = (steps - unsampled) * sampling / 1e3 if part is StepPart.OTHER else 0.0
        parts.append(PartTime(part, each * steps + extra, each * unsampled, each, each, each, each))
    loader = LoaderSettings(workers, 16) if workers is not None else None
    own = milliseconds.get("gradtui", 0.0)
    early = (sum(milliseconds.values()) - own) / 1e3
    return StepTimesMeasured(1.0, steps, steps, unsampled, with_evaluation, tuple(parts), loader, early, 1.25 * early)
