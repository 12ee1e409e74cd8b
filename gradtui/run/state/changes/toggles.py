"""What a toggle of a row does: it freezes what trains in it, and the next toggle restores exactly that. Pure.

So a toggle is its own inverse. In a model with adapters, a freeze takes the adapters alone, since the script has frozen the
base weights itself, and the next toggle must not unfreeze those. Commands ask for the same by `restore` of `SetTrainable`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import SetTrainable, TrainOnly
from gradtui.protocol.freezes import FreezeInForce
from gradtui.run.state.forecasts.forecast import MAX_MODULES, MAX_PARAMETERS, Forecast, forecast, leaves_nothing
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import module_at, subtree
from gradtui.run.state.tree.selection import NothingSelected, find
from gradtui.run.state.tree_state import TreeState


@dataclass(frozen=True)
class Toggle:
    """What a toggle of a row would do."""

    trainable: bool
    parameters: Sequence[int]
    """Indexes, in order: those of the row or, if `restores`, those that would be restored."""
    restores: bool = False
    """A part of the row stays frozen: that which commands have not frozen."""


@dataclass(frozen=True)
class ToggleEffect:
    """What becomes of a row."""

    toggle: Toggle | None
    """None while it is unknown whether the row trains."""
    pending: bool | None = None
    """What a command that waits does to a part of the row: True unfreezes it."""
    would_fail: bool = False
    """Nothing would train: `loss.backward()` would fail."""
    forecast: Forecast | None = None
    """None while a command waits, and for more tensors than a redraw may forecast."""


def toggle_effect(state: RunState, path: str, parameters: range) -> ToggleEffect:
    """Return what a toggle of the row with this path and these parameters would change."""
    toggle, waiting = toggle_of(state, path, parameters), pending_parameters(state)
    pending = next((waiting[index] for index in parameters if index in waiting), None) if waiting else None
    if toggle is None or pending is not None:
        return ToggleEffect(toggle, pending)
    if not toggle.trainable and leaves_nothing(state, parameters):
        return ToggleEffect(toggle, would_fail=True)
    if len(parameters) > MAX_PARAMETERS:
        return ToggleEffect(toggle)
    change = forecast(state, toggle.parameters, toggle.trainable, MAX_MODULES, restores=toggle.restores)
    return ToggleEffect(toggle, None, change.would_fail, change)


def toggle_of(state: RunState, path: str, parameters: range) -> Toggle | None:
    """Return what a toggle of the row with this path and these parameters does. A pending command counts as applied.

    None while it is unknown of all of them whether they train.
    """
    tree, waiting = state.tree, pending_parameters(state)
    flags = tree.trainable[parameters.start : parameters.stop]
    back: Sequence[int] = ()
    if waiting and any(index in waiting for index in parameters):
        pairs = list(zip(parameters, flags))
        flags = "".join(str(int(waiting[index])) if index in waiting else flag for index, flag in pairs)
        back = [index for index, flag in pairs if flag == "1" and not waiting.get(index, True)]
        back = back if "1" not in flags else ()
    else:
        touching = _touching(freezes_in_force(tree), parameters)
        # What the script itself has set back to trainable since does not matter.
        back = touching[-1].parameters if touching and _is_of(touching[-1], path) else ()
    if not back and "1" in flags:
        return Toggle(False, parameters)
    if not back and "0" not in flags:
        return None
    back = back or restored(freezes_in_force(tree), path, parameters)
    is_part = 0 < len(_within(back, parameters)) < len(parameters)
    return Toggle(True, back if is_part else parameters, restores=is_part)


def restored(in_force: Iterable[FreezeInForce], selection: str, named: Collection[int]) -> tuple[int, ...]:
    """Return what an unfreeze that restores makes trainable: indexes in order, none if no command has frozen any of `named`.

    If the newest freeze in `named` is of the same selection, and no command has changed a part of it, these are its parameters.
    Otherwise they are all of `named` that commands have frozen.
    """
    touching = _touching(in_force, named)
    if touching and _is_of(touching[-1], selection):
        return touching[-1].parameters
    return tuple(sorted({index for each in touching for index in _within(each.parameters, named)}))


def pending_parameters(state: RunState) -> dict[int, bool]:
    """Return the parameters with a pending freeze (False) or unfreeze (True)."""
    waiting: dict[int, bool] = {}
    now = state.tree.trainable
    for command in state.pending_toggles():
        if isinstance(command, TrainOnly):
            chosen = set(_indices(state.tree, command.selection))
            # Only parameters that the command would change.
            waiting |= {index: index in chosen for index, flag in enumerate(now) if (flag == "1") != (index in chosen)}
            continue
        named: Collection[int] = _indices(state.tree, command.path)
        if command.restore:
            stopping = [index for index in named if now[index] == "1" and not waiting.get(index, True)]
            named = stopping or restored_by(state.tree, command, named)
        waiting |= dict.fromkeys(named, command.trainable)
    return waiting


def restored_by(tree: TreeState, command: SetTrainable, named: Collection[int]) -> tuple[int, ...]:
    """Return what a command with `restore` makes trainable of the parameters that it names."""
    return restored(freezes_in_force(tree), command.path, named)


def freezes_in_force(tree: TreeState) -> Sequence[FreezeInForce]:
    """Return the freezes of commands that are in force, oldest first."""
    return tree.freezes.in_force if tree.freezes is not None else ()


def _touching(in_force: Iterable[FreezeInForce], named: Collection[int]) -> list[FreezeInForce]:
    return [each for each in in_force if _within(each.parameters, named)]


def _is_of(freeze: FreezeInForce, selection: str) -> bool:
    return freeze.selection == selection and not freeze.is_divided


def _within(parameters: Sequence[int], named: Collection[int]) -> Sequence[int]:
    if isinstance(named, range):
        return parameters[bisect_left(parameters, named.start) : bisect_left(parameters, named.stop)]
    chosen = named if isinstance(named, (set, frozenset, dict)) else set(named)
    return [index for index in parameters if index in chosen]


def _indices(tree: TreeState, selection: str) -> Collection[int]:
    module = module_at(tree, selection)
    if module is not None:
        return subtree(tree.modules[module])
    try:
        return find(selection, tree).indices
    except NothingSelected:
        return ()
