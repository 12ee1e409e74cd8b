"""Compare what all ranks of a job must have in common, at the steps that all of them have measured. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from gradtui.protocol.events import ReplicasMeasured
from gradtui.state.job import Divergence, JobState, Kind, RankRecord

NAMED = 4
"""Names of parameters in an entry of the log."""


def compare_ranks(job: JobState, step: int) -> Iterator[str]:
    """Compare the ranks at a step, if all of the job's ranks have measured it, and keep what differs. Yield what is new, in
    words. Steps are compared once, in their order."""
    records = [job.ranks[rank] for rank in sorted(job.ranks)]
    if step <= job.compared_step or len(records) < max(2, job.size):
        return
    found = {record.rank: check for record in records for check in record.checks if check.step == step}
    if len(found) < len(records):
        return
    job.compared_step = step
    if any(_paths(each) != _paths(records[0]) for each in records):
        # The models differ, or a rank lists them in another order: no index of one is that of another.
        return
    for kind in get_args(Kind):
        yield from _compare(job, kind, step, found, records[0])


def _compare(
    job: JobState, kind: Kind, step: int, found: Mapping[int, ReplicasMeasured], record: RankRecord
) -> Iterator[str]:
    values = {rank: tuple(getattr(check, kind)) for rank, check in found.items()}
    names, ranks = differences(kind, values, record)
    known = job.divergences.get(kind)
    if not names:
        job.equal_steps[kind] = step
        if known is not None and known.over_step is None:
            known.over_step = step
            yield f"{_TITLES[kind]} are equal on all ranks again"
        return
    if known is not None and known.over_step is None:
        known.last_step, known.ranks, known.names = step, ranks, names
        return
    job.divergences[kind] = Divergence(kind, job.equal_steps.get(kind), step, ranks, names, last_step=step)
    some = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    yield f"{which}: {_TITLES[kind]} differ from those of the other ranks: {some}"


def differences(
    kind: Kind, values: Mapping[int, Sequence[Any]], record: RankRecord
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of what differs between ranks, and the ranks that differ from most.

    Where no value is that of more ranks than any other, that of the lowest rank counts as that of most.
    """
    lengths = {len(each) for each in values.values()}
    if len(lengths) > 1:
        # As many optimizers, parameters or buffers as only some ranks have.
        sizes = {rank: (len(each),) for rank, each in values.items()}
        return ("their number",), tuple(sorted(_outliers(sizes, 0)))
    names: list[str] = []
    ranks: set[int] = set()
    for index in range(lengths.pop()):
        outliers = _outliers(values, index)
        if outliers:
            names.append(_name(kind, index, record))
            ranks |= outliers
    return tuple(names), tuple(sorted(ranks))


def _outliers(values: Mapping[int, Sequence[Any]], index: int) -> set[int]:
    """Return the ranks whose value at an index is not that of most."""
    # Two NaN are the same value here, and are not equal.
    at = {rank: repr(each[index]) for rank, each in values.items()}
    if len(set(at.values())) < 2:
        return set()
    counts = Counter(at.values())
    most = max(counts.values())
    usual = next(value for _, value in sorted(at.items()) if counts[value] == most)
    return {rank for rank, value in at.items() if value != usual}


def _name(kind: Kind, index: int, record: RankRecord) -> str:
    if kind == "rates":
        return f"optimizer {index}"
    if kind == "buffers":
        return record.buffers[index] if index < len(record.buffers) else f"buffer {index}"
    return record.parameters[index].path if index < len(record.parameters) else f"parameter {index}"


def _paths(record: RankRecord) -> tuple[list[str], tuple[str, ...]]:
    return [each.path for each in record.parameters], record.buffers


_TITLES: dict[Kind, str] = {
    "trainable": "the flags requires_grad",
    "owned": "the parameters of the optimizers",
    "rates": "the learning rates",
    "checksums": "the values of parameters",
    "buffers": "the values of buffers",
}
