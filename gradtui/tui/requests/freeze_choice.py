"""What the dialog "Freeze…" offers, and what each choice would leave trainable: told by the listed tree alone. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly
from gradtui.state.run_state import RunState, TreeState
from gradtui.state.selection import NothingSelected, Selected, find, offered

MODES = ("train only", "freeze", "unfreeze")
"""What can be done with what is selected; `train only` freezes all the rest."""


@dataclass(frozen=True)
class Choice:
    """Something to do, and what it would leave: tensors and elements, None where it is not known what trains now."""

    mode: str
    selection: str
    selected: int
    tensors: int | None
    elements: int | None

    @property
    def left(self) -> str:
        """What it would leave trainable, in words."""
        if self.tensors is None or self.elements is None:
            return "not known before the first step"
        return f"{self.tensors:,} tensor{'' if self.tensors == 1 else 's'}, {self.elements:,} parameters"

    @property
    def row(self) -> str:
        """The same in columns."""
        if self.tensors is None or self.elements is None:
            return self.left
        return f"{self.tensors:>6,} tensor{' ' if self.tensors == 1 else 's'} {self.elements:>14,} parameters"

    def command(self, number: int) -> Command:
        """It as a command with this id."""
        if self.mode == "train only":
            return TrainOnly(number, self.selection)
        return SetTrainable(number, self.selection, self.mode == "unfreeze")


class Presets:
    """Every preset that means something; which are found once for each tree."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._found: tuple[int, list[Selected]] = (-1, [])

    def choices(self, mode: str) -> list[Choice]:
        """What each would leave."""
        tree = self._state.tree
        if self._found[0] != tree.version:
            self._found = (tree.version, offered(tree))
        return [_choice(tree, mode, found.shown, found.places) for found in self._found[1]]


def typed(tree: TreeState, mode: str, text: str) -> Choice | str:
    """What was typed as a choice, or in words why it is none."""
    try:
        found = find(text, tree)
    except NothingSelected as nothing:
        return str(nothing)
    if not found.places:
        return f"{found.shown or 'the model'} has no parameters"
    return _choice(tree, mode, text.strip(), found.places)


def before(state: RunState) -> str:
    """What trains now, in words."""
    places = _trainable(state.tree)
    return "not known before the first step" if places is None else _choice(state.tree, "train only", "", places).left


def _choice(tree: TreeState, mode: str, selection: str, places: Collection[int]) -> Choice:
    now = _trainable(tree)
    left: set[int] | None = set(places)
    if mode != "train only":
        left = None if now is None else now - set(places) if mode == "freeze" else now | set(places)
    if left is None:
        return Choice(mode, selection, len(places), None, None)
    return Choice(mode, selection, len(places), len(left), sum(tree.parameters[place].count for place in left))


def _trainable(tree: TreeState) -> set[int] | None:
    """Places of what trains now; None while that is not known."""
    if "-" in tree.trainable or not tree.trainable:
        return None
    return {place for place, flag in enumerate(tree.trainable) if flag == "1"}
