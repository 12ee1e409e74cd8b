"""The names of param groups. Pure."""

from __future__ import annotations

from gradtui.run.state.optimizers.param_groups import ParamGroup
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import short_rate
from gradtui.system.printable import printable


def group_title(state: RunState, group: ParamGroup, *, with_rate: bool = False) -> str:
    """Return the name of a group among all: `group 1 (head)`, with the type of its optimizer if there are several.

    `with_rate` adds its learning rate: `group 1 (head, lr 1e-3)`.
    """
    several = sum(not each.freed and each.groups_of < 0 for each in state.optimizers) > 1
    title = f"{state.optimizers[group.optimizer].type_name} group" if several else "group"
    rate = f"lr {short_rate(group.rate)}" if with_rate else ""
    more = ", ".join(filter(None, (printable(group.name), rate)))
    return f"{title} {group.number}" + (f" ({more})" if more else "")
