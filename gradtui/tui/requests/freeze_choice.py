"""The choices of the dialog "Freeze…", and what each would leave trainable, computed from the listed tree alone. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gradtui.protocol.commands import Command, SetTrainable, TrainOnly
from gradtui.state.run_state import RunState, TreeState
from gradtui.state.selection import NothingSelected, Selected, find, offered

MODES = ("train only", "freeze", "unfreeze")
"""What to do with the selection; `train only` freezes everything else."""


@dataclass(frozen=True)
class Choice:
    """A change of what trains, with the tensors and elements it would leave trainable.

    Both are None if it is unknown what trains now.
    """

    mode: str
    selection: str
    selected: int
    tensors: int | None
    elements: int | None

    @property
    def left(self) -> str:
        """What the choice would leave trainable, in words."""
        if self.tensors is None or self.elements is None:
            return "not known before the first step"
        return f"{self.tensors:,} tensor{'' if self.tensors == 1 else 's'}, {self.elements:,} parameters"

    @property
    def row(self) -> str:
        """The text of `left`, aligned in columns."""
        if self.tensors is None or self.elements is None:
            return self.left
        return f"{self.tensors:>6,} tensor{' ' if self.tensors == 1 else 's'} {self.elements:>14,} parameters"

    def command(self, number: int) -> Command:
        """Make the command of this choice with the id `number`."""
        if self.mode == "train only":
            return TrainOnly(number, self.selection)
        return SetTrainable(number, self.selection, self.mode == "unfreeze")


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
        return [_choice(tree, mode, found.shown, found.indices) for found in self._found[1]]


def typed(tree: TreeState, mode: str, text: str) -> Choice | str:
    """Return the choice for typed text, or a sentence that says why there is none."""
    try:
        found = find(text, tree)
    except NothingSelected as nothing:
        return str(nothing)
    if not found.indices:
        return f"{found.shown or 'the model'} has no parameters"
    return _choice(tree, mode, text.strip(), found.indices)


def before(state: RunState) -> str:
    """Say what trains now."""
    indices = _trainable(state.tree)
    return "not known before the first step" if indices is None else _choice(state.tree, "train only", "", indices).left


def _choice(tree: TreeState, mode: str, selection: str, indices: Collection[int]) -> Choice:
    now = _trainable(tree)
    left: set[int] | None = set(indices)
    if mode != "train only":
        left = None if now is None else now - set(indices) if mode == "freeze" else now | set(indices)
    if left is None:
        return Choice(mode, selection, len(indices), None, None)
    return Choice(mode, selection, len(indices), len(left), sum(tree.parameters[index].count for index in left))


def _trainable(tree: TreeState) -> set[int] | None:
    """Return the indexes of the trainable parameters; None while they are unknown."""
    if "-" in tree.trainable or not tree.trainable:
        return None
    return {index for index, flag in enumerate(tree.trainable) if flag == "1"}
