"""Compare what all ranks of a job must have in common, at the steps that all of them have measured. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradtui.protocol.events import ReplicasMeasured
from gradtui.run.reducer.common_steps import least_common
from gradtui.run.state.parts.job import CHECKS_KEPT, Divergence, JobState, Kind, Outline, RankRecord
from gradtui.run.text import divergence_text, equal_again_text

_MEASURED: tuple[Kind, ...] = ("trainable", "owned", "rates", "checksums", "buffers")
_SAMPLED: tuple[Kind, ...] = ("checksums", "buffers")
"""Of these each measurement has only some elements: one that is equal does not show that all elements are."""
_OVER_CHECKS = 4
"""The number of successive equal measurements after which ranks count as equal again."""
_ORDER = "the order of the parameters"
_ABSENT = "none"
"""The learning rate of a param group that a rank does not have."""
_WORDS: dict[Kind, dict[str, str]] = {
    "trainable": {"1": "trainable", "0": "frozen"},
    "owned": {"1": "in an optimizer", "0": "in none"},
}


class Difference(NamedTuple):
    """What differs between ranks: the fields of `Divergence` with these names."""

    names: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    distinct: int = 1
    values: tuple[str, ...] = ()


def keep_check(job: JobState, record: RankRecord, check: ReplicasMeasured) -> None:
    """Keep a measurement of a rank until its step is compared."""
    if check.step <= job.compared_step:
        return
    job.has_replicas |= any(each is not None for each in check.checksums)
    others = [each for other in job.ranks.values() for each in other.checks if each.step == check.step]
    record.checks.append(_shared(check, [*others, *record.checks[-1:]]))
    if len(record.checks) > CHECKS_KEPT:
        del record.checks[least_common([each.step for each in record.checks])]


def _shared(check: ReplicasMeasured, others: Sequence[ReplicasMeasured]) -> ReplicasMeasured:
    """Return a measurement that has the same objects as others where it is equal to them."""
    fields: dict[str, Any] = {kind: getattr(check, kind) for kind in _MEASURED}
    for kind, own in fields.items():
        fields[kind] = next((theirs for each in others if (theirs := getattr(each, kind)) == own), own)
    return replace(check, **fields)


def compare_ranks(job: JobState, step: int) -> Iterator[str]:
    """Compare the ranks at a step, if all of the job's ranks have measured it, and keep what differs. Yield what is new, in
    words. Steps are compared once, in their order; ranks that are gone are left out of those that they have not reached."""
    if step <= job.compared_step or len(job.ranks) < max(2, job.size):
        return
    found: dict[int, ReplicasMeasured] = {}
    for rank in sorted(job.ranks):
        record = job.ranks[rank]
        check = next((each for each in record.checks if each.step == step), None)
        if check is not None:
            found[rank] = check
        elif record.is_connected and record.ended is None:
            return
    if len(found) < 2:
        return
    job.compared_step = step
    for record in job.ranks.values():
        record.checks = [each for each in record.checks if each.step > step]
    compared = tuple(found)
    models = models_difference({rank: job.ranks[rank].outline for rank in found})
    yield from _note(job, "models", step, compared, models)
    if models.names:
        # No index of one rank is that of another.
        return
    for kind in _MEASURED:
        values = {rank: getattr(check, kind) for rank, check in found.items()}
        yield from _note(job, kind, step, compared, differences(kind, values, job.ranks[compared[0]]))


def _note(job: JobState, kind: Kind, step: int, compared: tuple[int, ...], difference: Difference) -> Iterator[str]:
    known = job.divergences.get(kind)
    is_open = known is not None and known.over_step is None
    if not difference.names:
        if known is not None and is_open:
            known.equal_checks += 1
            if known.equal_checks < _OVER_CHECKS and kind in _SAMPLED:
                return
            known.over_step = step
            job.divergence_changes += 1
            yield equal_again_text(kind)
        job.equal_steps[kind] = step
        return
    if known is None or not is_open:
        equal_step = job.equal_steps.get(kind)
        new = Divergence(kind, equal_step, step, compared, last_step=step, **difference._asdict())
        job.divergences[kind] = new
        job.divergence_changes += 1
        yield divergence_text(new)
        return
    if kind in _SAMPLED:
        # Others may have been in the sample this time.
        names = tuple(dict.fromkeys([*known.names, *difference.names]))
        ranks = tuple(sorted({*known.ranks, *difference.ranks}))
        difference = Difference(names, ranks, max(known.distinct, difference.distinct))
    if (known.names, known.ranks, known.distinct) != (difference.names, difference.ranks, difference.distinct):
        job.divergence_changes += 1
    known.names, known.ranks, known.distinct, known.values = difference
    known.last_step, known.compared, known.equal_checks = step, compared, 0


def models_difference(outlines: Mapping[int, Outline]) -> Difference:
    """Return what differs between the models of ranks: parameters and buffers that not all have, or their order."""
    first = next(iter(outlines.values()))
    if all(each is first or each == first for each in outlines.values()):
        return Difference()
    parts = {rank: (*each[0], *((path, None) for path in each[1])) for rank, each in outlines.items()}
    counts = Counter(part for each in parts.values() for part in set(each))
    unlike = dict.fromkeys(path for (path, _), count in counts.items() if count < len(parts))
    return Difference(tuple(unlike) or (_ORDER,), *_parts(parts))


def differences(kind: Kind, values: Mapping[int, Sequence[Any]], record: RankRecord) -> Difference:
    """Return what differs between ranks, and the ranks that differ from most. `record` has the names.

    Where no value is that of more ranks than any other, that of the lowest rank counts as that of most. What a rank does not
    know (None, NaN) is not compared.
    """
    first = next(iter(values.values()))
    if all(each is first for each in values.values()):
        return Difference()
    named = [_rates(each) if kind == "rates" else dict(enumerate(each)) for each in values.values()]
    absent = _ABSENT if kind == "rates" else None
    found: dict[str, Difference] = {}
    for key in dict.fromkeys(key for each in named for key in each):
        known = [each.get(key, absent) for each in named]
        if len(set(known)) < 2 or any(each is None or each != each for each in known):
            continue
        name = key if isinstance(key, str) else _name(kind, key, record)
        words = tuple([_word(kind, each) for each in known]) if not (found or kind in _SAMPLED) else ()
        found[name] = Difference((name,), *_parts(dict(zip(values, known))), words)
    if not found:
        return Difference()
    return Difference(
        tuple(found),
        tuple(sorted({rank for each in found.values() for rank in each.ranks})),
        max(each.distinct for each in found.values()),
        next(iter(found.values())).values,
    )


def _parts(at: Mapping[int, Any]) -> tuple[tuple[int, ...], int]:
    """Return the ranks whose value is not that of most, and the number of distinct values."""
    counts = Counter(at.values())
    most = max(counts.values())
    usual = next(value for _, value in sorted(at.items()) if counts[value] == most)
    return tuple(sorted(rank for rank, value in at.items() if value != usual)), len(counts)


def _rates(rates: Sequence[Sequence[float]]) -> dict[Any, Any]:
    return {
        f"optimizer {number}, group {group}": rate
        for number, each in enumerate(rates)
        for group, rate in enumerate(each)
    }


def _name(kind: Kind, index: int, record: RankRecord) -> str:
    if kind == "buffers":
        return record.buffers[index] if index < len(record.buffers) else f"buffer {index}"
    return record.parameters[index].path if index < len(record.parameters) else f"parameter {index}"


def _word(kind: Kind, value: Any) -> str:
    if kind == "rates":
        return value if isinstance(value, str) else f"{value:g}"
    return _WORDS.get(kind, {}).get(value, "")
