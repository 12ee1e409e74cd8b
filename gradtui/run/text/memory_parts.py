"""The parts into which the bytes of a phase are divided, and their names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes
from gradtui.run.state.memory.step_curve import step_curve
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import unexplained_parts

BEFORE_TRAINING = "at_load"
"""The role of the bytes that no category explains before the first forward: imports and data, not added by training."""

MEMORY_PARTS = (*MEMORY_CATEGORIES, BEFORE_TRAINING)
"""The parts in the order in which they are drawn. Each is also the role of its colour."""

_WHERE_THERE_ARE_ANY = ("buckets", "input", "offloaded")
"""Parts that many runs never have. They are shown once one of them is not empty."""

TEMPORARIES = "temporaries"
"""The role of what a phase frees before it ends: at its peak it belongs to no other part."""

_NAMES = {
    TEMPORARIES: "temporary",
    "buckets": "DDP buckets",
    "optimizer_state": "optimizer",
    BEFORE_TRAINING: "before training",
}
_SHORT_NAMES = {
    "parameters": "param", "buffers": "bufs", "gradients": "grads", "buckets": "DDP",
    "optimizer_state": "optim", "activations": "activ", "input": "input",
    "offloaded": "offld", "other": "other", BEFORE_TRAINING: "prior", TEMPORARIES: "temp",
}  # fmt: skip
_WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS = "other+activ", "+act"


@dataclass(frozen=True)
class MemoryPart:
    """A part of the memory breakdown; `size` in bytes, None if unknown."""

    role: str
    size: int | None
    name: str
    short_name: str
    within_total: bool = True


def parts_of_memory(held: MemoryBytes, state: RunState) -> list[MemoryPart]:
    """Divide `held` into parts; those within the total add up to it if it is known.

    The bytes left unexplained at the end of `load` are separated from those added since. Unknown activations are contained in
    the part `other`, and its name then says so.
    """
    ends = [record.last.held for record in state.phases.values() if record.last is not None]
    return parts_of(held, ends, state.held_since_load)


def parts_of(held: MemoryBytes, ends: Iterable[MemoryBytes], before_training: int | None) -> list[MemoryPart]:
    """Return the same. `ends`: what is held at the end of each phase; `before_training`: the bytes left at that of `load`."""
    measured = [held, *ends]
    sizes: dict[str, int | None] = {
        role: getattr(held, role)
        for role in MEMORY_CATEGORIES
        if role not in _WHERE_THERE_ARE_ANY or any(getattr(each, role) for each in measured)
    }
    at_load, since = unexplained_parts(before_training, held)
    sizes["other"] = since
    if at_load is not None:
        sizes[BEFORE_TRAINING] = at_load
    within = held.within_total().keys() | {BEFORE_TRAINING}
    parts = [
        MemoryPart(role, size, memory_part_name(role), _SHORT_NAMES[role], role in within)
        for role, size in sizes.items()
    ]
    if held.activations is not None:
        return parts
    return [
        MemoryPart(part.role, part.size, _WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS) if part.role == "other" else part
        for part in parts
    ]


def parts_at_peak(state: RunState) -> list[MemoryPart]:
    """Divide the peak of the newest step whose course is known. Empty while there is none.

    The parts add up to it; to more, where the categories overlap and their sum exceeds the total.

    Bytes from before training are in no part. Where only an allocator has kept the peak, the parts are those at the end of its
    phase, and `TEMPORARIES` what the phase has freed by then.
    """
    curve = step_curve(state)
    if curve is None:
        return []
    sizes: dict[str, int] = {}
    if curve.has_every_change and state.step_profile is not None and state.step_profile.holdings:
        for holding in state.step_profile.holdings:
            sizes[holding.kind] = sizes.get(holding.kind, 0) + holding.bytes
    elif not curve.has_every_change and (measured := state.phases[curve.peak_phase].last) is not None:
        sizes = {role: size for role, size in measured.held.within_total().items() if size}
        sizes["other"] = measured.held.other or 0
        sizes[TEMPORARIES] = curve.peak - (measured.held.total or 0)
    if not sizes:
        return []
    other = max(0, sizes.get("other", 0))
    sizes["other"] = other - min(state.held_since_load or 0, other)
    order = [role for role in (*MEMORY_CATEGORIES, TEMPORARIES) if sizes.get(role)]
    return [MemoryPart(role, sizes[role], memory_part_name(role), _SHORT_NAMES[role]) for role in order]


def memory_part_name(role: str) -> str:
    """Return the name of a part."""
    return _NAMES.get(role, role)
