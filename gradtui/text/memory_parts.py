"""The parts into which the bytes of a phase are divided, and their names. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes
from gradtui.state.run_state import RunState
from gradtui.state.selectors import unexplained_parts

BEFORE_TRAINING = "at_load"
"""The role of the bytes that no category explains before the first forward: imports and data, not added by training."""

MEMORY_PARTS = (*MEMORY_CATEGORIES, BEFORE_TRAINING)
"""The parts in the order in which they are drawn. Each is also the role of its colour."""

_WHERE_THERE_ARE_ANY = ("buckets", "input", "offloaded")
"""Parts that many runs never have. They are shown once one of them is not empty."""

_NAMES = {"buckets": "DDP buckets", "optimizer_state": "optimizer", BEFORE_TRAINING: "before training"}
_SHORT_NAMES = {
    "parameters": "par", "buffers": "buf", "gradients": "grad", "buckets": "ddp",
    "optimizer_state": "opt", "activations": "act", "input": "inp",
    "offloaded": "off", "other": "oth", BEFORE_TRAINING: "pre",
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
    measured = [held, *(record.last.held for record in state.phases.values() if record.last is not None)]
    sizes: dict[str, int | None] = {
        role: getattr(held, role)
        for role in MEMORY_CATEGORIES
        if role not in _WHERE_THERE_ARE_ANY or any(getattr(each, role) for each in measured)
    }
    at_load, since = unexplained_parts(state, held)
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


def memory_part_name(role: str) -> str:
    """Return the name of a part."""
    return _NAMES.get(role, role)
