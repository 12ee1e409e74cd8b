"""Compare the step after which one run has saved its training with the first step of the run that has loaded it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gradtui.dataclass import dataclass
from gradtui.protocol.events import CheckpointSaved, RunResumed


@dataclass(frozen=True)
class ResumableRun:
    """What a recording says of saved and loaded trainings."""

    name: str
    steps: int
    saved: tuple[CheckpointSaved, ...]
    resumed: RunResumed | None
    """The first one."""
    batches: Mapping[int, str]
    """Digests of the batches that are known, by step; empty for one that is gone."""
    losses: Mapping[int, float]
    """By step: those of the main optimizer."""
    findings: tuple[str, ...]
    """What rules about loading have found."""


@dataclass(frozen=True)
class Compared:
    """One thing of both runs."""

    name: str
    a: str | float | None
    """None if it is unknown."""
    b: str | float | None
    is_equal: bool | None
    """None if it cannot be told."""
    note: str = ""


@dataclass(frozen=True)
class Resumption:
    """How B continues A."""

    a: str
    b: str
    file: str
    """The checkpoint; empty if its name is unknown."""
    saved_step: int | None
    """The step of A after which it saved what B has loaded; None if B has loaded nothing of A."""
    last_step: int
    """The last step of A."""
    first_step: int
    """The step of B that is compared; 0 if B has loaded no training before a first step."""
    rows: tuple[Compared, ...]
    findings: tuple[str, ...]
    """What is known of B."""


def resumption(a: ResumableRun, b: ResumableRun) -> Resumption:
    """Compare run B, which has loaded a training, with run A, which has saved it."""
    resumed = b.resumed
    if resumed is None:
        return Resumption(a.name, b.name, "", None, a.steps, 0, (), b.findings)
    saved = _loaded(a, resumed)
    first = resumed.step + 1
    if saved is None:
        rows = (_loss(a, b, a.steps, first),)
        return Resumption(a.name, b.name, resumed.files[-1], None, a.steps, first, rows, b.findings)
    following = saved.step + 1
    rows = (
        _weights(saved, resumed),
        _rates(saved, resumed),
        _texts("batch", a.batches.get(following), b.batches.get(first), _why_no_batch(a, following)),
        _loss(a, b, saved.step, first),
        *((_loss(a, b, following, first, is_same=True),) if following <= a.steps else ()),
    )
    return Resumption(a.name, b.name, saved.file, saved.step, a.steps, first, rows, b.findings)


def _loaded(a: ResumableRun, resumed: RunResumed) -> CheckpointSaved | None:
    """Return the newest that A has saved of what was loaded; of several files of one step that with an optimizer."""
    known = [each for each in a.saved if each.digest in resumed.digests]
    return max(known, key=lambda each: (each.step, bool(each.optimizers)), default=None)


def _weights(saved: CheckpointSaved, resumed: RunResumed) -> Compared:
    if saved.tensors != resumed.tensors:
        note = f"A has {saved.tensors:,} tensors, B {resumed.tensors:,}"
        return Compared("weights", saved.weights or None, resumed.weights or None, None, note)
    return _texts("weights", saved.weights, resumed.weights, f"a checksum of {saved.tensors:,} tensors")


def _rates(saved: CheckpointSaved, resumed: RunResumed) -> Compared:
    given = [group.learning_rate for each in saved.optimizers[:1] for group in each.groups]
    if not given:
        return Compared("learning rate", None, _first(resumed.learning_rates), None, "the file has no optimizer")
    is_equal = tuple(given) == resumed.learning_rates
    return Compared("learning rate", given[0], _first(resumed.learning_rates), is_equal)


def _first(rates: tuple[float | None, ...]) -> float | None:
    return rates[0] if rates else None


def _loss(a: ResumableRun, b: ResumableRun, step: int, first: int, *, is_same: bool = False) -> Compared:
    """Compare losses. `is_same`: they are of the same step of the training, so that they should be equal."""
    one, other = a.losses.get(step), b.losses.get(first)
    name = f"loss, A step {step:,}"
    if one is None or other is None:
        return Compared(name, one, other, None, "not every loss was read")
    note = "" if is_same and one == other else f"difference {other - one:+.3g}"
    return Compared(name, one, other, one == other if is_same else None, note)


def _texts(name: str, one: str | None, other: str | None, note: str = "") -> Compared:
    is_known = bool(one) and bool(other)
    return Compared(name, one or None, other or None, one == other if is_known else None, note)


def _why_no_batch(a: ResumableRun, step: int) -> str:
    if step > a.steps:
        return f"A made no step after it saved: its last one is {a.steps:,}"
    return "" if a.batches.get(step) else "no DataLoader yielded it, or it was released"
