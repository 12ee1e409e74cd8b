"""Why a command of a file or of another process cannot be carried out, as far as that is known without the run. Pure."""

from __future__ import annotations

from gradtui.protocol.commands import Command, SetGroup
from gradtui.state.selection import objection_to_expressions


def objection_to(command: Command) -> str | None:
    """Return why no run could carry out this command; None if one could."""
    if isinstance(command, SetGroup):
        numbers = [value for value in (command.learning_rate, command.weight_decay) if value is not None]
        if not numbers:
            return "set_group needs a learning_rate or a weight_decay"
        negative = [value for value in (command.optimizer, command.group, *numbers) if value < 0]
        return f"the numbers of set_group are from 0 on, not {negative[0]:g}" if negative else None
    return objection_to_expressions(getattr(command, "selection", getattr(command, "path", "")))
