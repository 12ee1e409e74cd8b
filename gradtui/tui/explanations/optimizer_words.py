"""Describes which optimizer has a parameter, the settings of its param group, and the bytes of its state. Pure."""

from __future__ import annotations

from gradtui.protocol.vocabulary import Setting
from gradtui.state.run_state import RunState
from gradtui.state.selectors import optimizers_of
from gradtui.text import short_bytes
from gradtui.tui.rendering import DetailRow, printable, text_rows


def optimizer_facts(state: RunState, parameter: int) -> list[DetailRow]:
    """Return these facts for one parameter."""
    rows = text_rows("optimizer", _owner_words(state, parameter))
    for index in optimizers_of(state, parameter):
        rows += text_rows("", group_words(state, index, parameter))
    read = state_bytes(state, state.tree.parameters[parameter].path) if optimizers_of(state, parameter) else []
    return rows + [DetailRow("", row.spans) for row in read]


def _owner_words(state: RunState, parameter: int) -> str:
    owners = optimizers_of(state, parameter)
    if not state.optimizers:
        return "None has been seen: the script updates it by itself." if state.step else "None has been seen yet."
    if not owners:
        return "In no optimizer, so no step moves it."
    names = ", ".join(f"{state.optimizers[i].type_name} (number {i + 1})" for i in owners)
    name = names if len(state.optimizers) > 1 else state.optimizers[owners[0]].type_name
    # A frozen parameter that stays in an optimizer keeps its momentum and averages there, unless the freeze dropped them.
    return (
        f"In {name}, which keeps the state it has for it." if state.tree.trainable[parameter] == "0" else f"In {name}."
    )


def group_words(state: RunState, optimizer: int, parameter: int) -> str | None:
    """Describe the optimizer's param group that contains the parameter; None if unknown."""
    info = state.optimizers[optimizer]
    if len(info.group_of) != len(info.parameters):
        return None
    group = info.group_of[info.parameters.index(parameter)]
    read = state.groups.optimizers if state.groups is not None else ()
    settings = read[optimizer][group] if optimizer < len(read) and group < len(read[optimizer]) else None
    if state.groups is None or settings is None:
        return f"Group {group} of {info.groups}." if info.groups > 1 else None
    which = f"Group {group} (of {info.groups}, counted from 0)" if info.groups > 1 else "Its only group"
    parts = [
        f"{name} {value:g}"
        for name, value in (("learning rate", settings.learning_rate), ("weight decay", settings.weight_decay))
        if value is not None
    ]
    parts += [_setting_words(name, value) for name, value in settings.further if value is not False]
    first, last = state.groups_since[optimizer, group]
    since = f"since step {last:,}" if first == last else f"since a step from {first:,} to {last:,}"
    return f"{which}: {', '.join(parts) or 'no learning rate that can be read'} ({since})."


def _setting_words(name: str, value: Setting) -> str:
    """Return a setting under the optimizer's name for it; a flag that is True by its name alone."""
    if value is True:
        return printable(name)
    numbers = value if isinstance(value, tuple) else (value,)
    words = ", ".join(f"{number:g}" for number in numbers)
    return f"{printable(name)} ({words})" if isinstance(value, tuple) else f"{printable(name)} {words}"


def state_bytes(state: RunState, path: str) -> list[DetailRow]:
    """Say how many bytes optimizers keep for a row, if that was requested."""
    read = state.tree.optimizer_state.get(path)
    if read is None or not state.optimizers:
        return []
    if not read.bytes:
        return text_rows("optimizer", f"No optimizer keeps any state for it (step {read.step:,}).")
    parts = ", ".join(f"{printable(name) or 'the rest'} {short_bytes(size)}" for name, size in read.entries)
    return text_rows("optimizer", f"State {short_bytes(read.bytes)}: {parts} (step {read.step:,}).")
