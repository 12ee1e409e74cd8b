"""The choices of the dialog "Freeze…", and what each would change, computed from the state of the run alone. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Command, SetRowsTrainable, SetTrainable, TrainOnly
from gradtui.run.state.forecasts.forecast import Forecast, forecast, forecast_train_only
from gradtui.run.state.forecasts.free_memory import Shortage, shortage
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.selection import NothingSelected, Selected, covering, find, offered
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text import command_text, would_train
from gradtui.run.text.forecast import memory_clauses, objection_clause, shortage_clause, statistics_clauses
from gradtui.run.text.units import count_text, listed, plural
from gradtui.system.printable import printable

MODES = ("train only", "freeze", "unfreeze")
"""What to do with the selection; `train only` freezes everything else."""

ROWS = "--rows"
"""Comes before the rows of one parameter in typed text: `embed.weight --rows 0:32000`."""
_NAMED = 2


@dataclass(frozen=True)
class Choice:
    """A change of what trains."""

    mode: str
    selection: str
    selected: int
    """Number of selected tensors."""
    names: str
    """The first few modules and parameters that make up the selection."""
    tensors: int | None
    """Tensors that it would leave trainable; None if it is unknown what trains now."""
    elements: int | None
    """Their elements; None likewise."""
    stops: str = ""
    """The first few modules and parameters that would stop training; empty if none would."""
    forecast: Forecast | None = None
    """None if it is unknown what trains now."""
    lacks: Shortage | None = None
    """The memory that it needs and that is not free."""

    @property
    def left(self) -> str:
        """The tensors and elements that the choice would leave trainable, in words."""
        if self.tensors is None or self.elements is None:
            return "not known before the first step"
        return f"{plural(self.tensors, 'tensor')}, {count_text(self.elements).strip()} parameters"

    @property
    def change(self) -> str:
        """What would stop training, and the change of memory, in words."""
        if self.forecast is None:
            return "what it changes is not known before the first step"
        statistics = statistics_clauses(self.forecast)
        if not self.forecast.stops and not self.forecast.starts:
            return " · ".join(statistics) or "nothing would change"
        stops = [f"stops {self.stops}"] if self.stops else []
        if objection := objection_clause(self.forecast):
            return printable(objection)
        lacks = [shortage_clause(self.lacks)] if self.lacks is not None else []
        return " · ".join([*lacks, *stops, *statistics, *memory_clauses(self.forecast)])

    def command(self, number: int) -> Command:
        """Make the command of this choice with the id `number`."""
        if self.mode == "train only":
            return TrainOnly(number, self.selection)
        return SetTrainable(number, self.selection, self.mode == "unfreeze")


@dataclass(frozen=True)
class RowsChoice:
    """A change of which rows of a parameter train."""

    words: str
    """What it would change, as a sentence."""
    made: SetRowsTrainable

    def command(self, number: int) -> Command:
        """Make the command of this choice with the id `number`."""
        return replace(self.made, id=number)


class Presets:
    """The presets that apply to the model; they are searched once per tree."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._found: tuple[int, list[Selected]] = (-1, [])

    def choices(self, mode: str) -> list[Choice]:
        """Return the choice for each preset in a mode."""
        tree = self._state.tree
        if self._found[0] != tree.version:
            self._found = (tree.version, offered(tree))
        return [_choice(self._state, mode, found.shown, found.indices) for found in self._found[1]]


def typed(state: RunState, mode: str, text: str) -> Choice | RowsChoice | str:
    """Return the choice for typed text, or a sentence that says why there is none."""
    path, with_rows, rows = text.partition(ROWS)
    if with_rows and mode == "train only":
        return f"{ROWS} is for freeze and unfreeze: tab goes there"
    try:
        if with_rows:
            made = SetRowsTrainable(0, path.strip(), mode == "unfreeze", rows.strip())
            return RowsChoice(f"{command_text(made)}: {would_train(state.tree, made)}.", made)
        found = find(text, state.tree)
    except NothingSelected as nothing:
        return str(nothing)
    if not found.indices:
        return f"{found.shown or 'the model'} has no parameters"
    return _choice(state, mode, text.strip(), found.indices)


def before(state: RunState) -> str:
    """Say what trains now."""
    indices = _trainable(state.tree)
    return "not known before the first step" if indices is None else _choice(state, "train only", "", indices).left


def _choice(state: RunState, mode: str, selection: str, indices: Collection[int]) -> Choice:
    tree = state.tree
    now = _trainable(tree)
    names = listed(list(map(printable, covering(tree, indices))), _NAMED)
    left: set[int] | None = set(indices)
    if mode != "train only":
        left = None if now is None else now - set(indices) if mode == "freeze" else now | set(indices)
    tensors = len(left) if left is not None else None
    elements = sum(tree.parameters[index].count for index in left) if left is not None else None
    if now is None:
        return Choice(mode, selection, len(indices), names, tensors, elements)
    only = mode == "train only"
    change = forecast_train_only(state, indices) if only else forecast(state, indices, mode == "unfreeze")
    stops = listed(list(map(printable, covering(tree, change.stops))), _NAMED)
    return Choice(mode, selection, len(indices), names, tensors, elements, stops, change, shortage(state, change))


def _trainable(tree: TreeState) -> set[int] | None:
    """Return the indexes of the trainable parameters; None while they are unknown."""
    if "-" in tree.trainable or not tree.trainable:
        return None
    return {index for index, flag in enumerate(tree.trainable) if flag == "1"}
