"""The declaration of one user action: its keys, its texts, and which object handles it. Pure."""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass

Scope = Literal["app", "dashboard", "tree", "plots", "output", "replay"]

GROUPS = ("Replay", "Training", "Model", "Moving", "Screen", "Plots", "Output")

UP_DOWN, LEFT_RIGHT, PLUS_MINUS, BRACKETS, SHIFT_ARROWS = (
    "up_down",
    "left_right",
    "plus_minus",
    "brackets",
    "shift_arrows",
)
"""Pseudo-keys that stand for two keys in the footer."""

_KEY_NAMES = {
    UP_DOWN: "↑↓",
    LEFT_RIGHT: "←→",
    PLUS_MINUS: "+-",
    BRACKETS: "[]",
    SHIFT_ARROWS: "⇧←→",
    "equals_sign": "=",
    "comma": ",",
    "full_stop": ".",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "dollar_sign": "$",
    "slash": "/",
    "exclamation_mark": "!",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "question_mark": "?",
    "escape": "esc",
    "minus": "-",
    "plus": "+",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "f1": "F1",
}


@dataclass(frozen=True)
class Action:
    """One action of the user."""

    id: str
    keys: tuple[str, ...]
    """Key names as in Textual; the first one is shown."""
    title: str
    """Its name in the command palette."""
    help: str
    """A sentence for the help and the command palette."""
    group: str
    scope: Scope
    footer: int = 0
    """Position in the footer, from 1 (the most important); 0 leaves it out."""
    label: str = ""
    """Its label in the footer."""
    mouse: str = ""
    """How to do the same with the mouse."""
    priority: bool = False
    """Whether the key also works while the user types text, and over a dialog."""
    in_palette: bool = True
    in_overview: bool = True
    """Whether the help lists it before something is searched for."""
    shown_key: str = ""
    """The key shown in the footer, if it is not the first one."""
    on_row: bool = False
    """Whether its keys act on the row under the tree's cursor. They do so only while the tree has the focus."""
    needs_run: bool = False
    """Whether it has no effect once the run has ended."""
    call: str = ""
    """The call of a method that handles several actions, in Textual's syntax: `zoom(0.5)`. Otherwise the method has the id."""

    @property
    def name(self) -> str:
        """The action in Textual's syntax, with the namespace if the app handles it."""
        return f"app.{self.id}" if self.scope == "app" else self.call or self.id

    @property
    def key_text(self) -> str:
        """The key as the footer shows it."""
        return key_name(self.shown_key or self.keys[0])

    @property
    def all_keys(self) -> str:
        """Every key of the action, empty if it has none."""
        return ", ".join(map(key_name, self.keys))

    @property
    def all_help(self) -> str:
        """The help sentence, followed by how to do the same with the mouse."""
        return f"{self.help} Mouse: {self.mouse}." if self.mouse else self.help


def key_name(key: str) -> str:
    """Return a key as shown to the user: `/`, `ctrl+p`."""
    return _KEY_NAMES.get(key, key)
