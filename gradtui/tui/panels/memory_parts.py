"""The parts into which the bytes of a phase are divided, with their names and patterns. UI thread; pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, MemoryBytes
from gradtui.state.run_state import RunState
from gradtui.state.selectors import unexplained_parts
from gradtui.tui.widgets import FULL

AT_LOAD = "at_load"
"""The role of the bytes that no category explains before the first forward: imports and data, not added by training."""

PARTS = (*MEMORY_CATEGORIES, AT_LOAD)
"""The parts in the order in which they are drawn. Each is also the role of its colour."""

_WHERE_THERE_ARE_ANY = ("input", "offloaded")
"""Parts that many runs never have. They are shown once one of them is not empty."""

_PATTERNS = dict(zip(PARTS, "█▓▒▪░▚▘·┄"))
_NAMES = {"optimizer_state": "optimizer", AT_LOAD: "at load"}
_SHORT_NAMES = {
    "parameters": "params", "buffers": "buffer", "gradients": "grads", "optimizer_state": "optim",
    "activations": "activ", "input": "input", "offloaded": "offld", "other": "other", AT_LOAD: "loaded",
}  # fmt: skip
_WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS = "other+activ", "+activ"

NAME_WIDTH, SHORT_NAME_WIDTH = 12, 7


@dataclass(frozen=True)
class Part:
    """A part of the memory breakdown; `size` in bytes, None if unknown."""

    role: str
    size: int | None
    name: str
    short_name: str
    within_total: bool = True


def parts_of(held: MemoryBytes, state: RunState) -> list[Part]:
    """Divide `held` into parts; those within the total add up to it if it is known.

    The bytes left unexplained at the end of `load` are separated from those added since. Unknown activations are contained in
    the part `other`, and its name then says so.
    """
    sizes: dict[str, int | None] = {
        role: getattr(held, role)
        for role in MEMORY_CATEGORIES
        if role not in _WHERE_THERE_ARE_ANY or getattr(held, role) or _is_anywhere(role, state)
    }
    at_load, since = unexplained_parts(state, held)
    sizes["other"] = since
    if at_load is not None:
        sizes[AT_LOAD] = at_load
    names = [_NAMES.get(role, role) for role in sizes]
    within = held.within_total().keys() | {AT_LOAD}
    parts = [Part(role, sizes[role], name, _SHORT_NAMES[role], role in within) for role, name in zip(sizes, names)]
    if held.activations is not None:
        return parts
    return [
        Part(part.role, part.size, _WITH_ACTIVATIONS, _SHORT_WITH_ACTIVATIONS) if part.role == "other" else part
        for part in parts
    ]


def _is_anywhere(role: str, state: RunState) -> bool:
    breakdowns = (record.last for record in state.phases.values())
    return any(getattr(breakdown.held, role) for breakdown in breakdowns if breakdown is not None)


def sample(role: str, *, colour: bool) -> str:
    """Return the character that a part's bar is made of."""
    return FULL if colour else _PATTERNS[role]
