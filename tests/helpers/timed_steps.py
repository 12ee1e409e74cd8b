"""What was measured of steps whose times are given."""

from __future__ import annotations

from gradtui.protocol.script_lines import ScriptLine
from gradtui.protocol.step_operations import OperationsCounted, PartOperations, ReadLine
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
    return StepTimesMeasured(
        1.0, steps, steps, unsampled, with_evaluation, tuple(parts), loader, None, early, 1.25 * early
    )


def counted(
    steps: int = 4, *, graph: int = 0, reads: int = 0, waited: float = 0.0, large: float = 0.0, at: str = "train.py",
    **operations: int,
) -> OperationsCounted:  # fmt: skip
    """Steps of so many operations of each part; reads and their wait, and long operations, in milliseconds, are in `other`."""
    parts = []
    for part in (StepPart.PREPARE, StepPart.FORWARD, StepPart.OTHER):
        number, is_other = operations.get(part.value, 0), part is StepPart.OTHER
        wait, long = (waited / 1e3, large / 1e3) if is_other else (0.0, 0.0)
        parts.append(PartOperations(part, number * steps, reads * steps * is_other, number * 6e-6, long, wait))
    line = ReadLine(ScriptLine(at, 41, "total += loss.item()"), reads * steps, waited / 1e3)
    return OperationsCounted(1.0, steps, steps, graph * steps, tuple(parts), (line,) if reads else ())
