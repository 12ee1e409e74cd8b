"""What one thing a person can do is: its keys, its words, and who handles it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scope = Literal["app", "dashboard", "tree", "plots"]

GROUPS = ("Training", "Model", "Moving", "Screen", "Plots")

UP_DOWN, LEFT_RIGHT, PLUS_MINUS = "up_down", "left_right", "plus_minus"
"""Stand for two keys together."""

_KEY_NAMES = {
    UP_DOWN: "↑↓",
    LEFT_RIGHT: "←→",
    PLUS_MINUS: "+-",
    "equals_sign": "=",
    "slash": "/",
    "exclamation_mark": "!",
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
    """One thing a person can do."""

    id: str
    keys: tuple[str, ...]
    """Keys as Textual names them; the first one is shown."""
    title: str
    """What it is called in the command palette."""
    help: str
    """A sentence for the help and the command palette."""
    group: str
    scope: Scope
    footer: int = 0
    """Place in the footer, from 1, the most important first; 0 keeps it out."""
    label: str = ""
    """The word in the footer."""
    mouse: str = ""
    """How the mouse does the same."""
    priority: bool = False
    """Whether the key works while text is being typed and over a dialog."""
    in_palette: bool = True
    shown_key: str = ""
    """The key of the footer, where that is not the first one."""

    @property
    def key_text(self) -> str:
        """The key as the footer shows it."""
        return key_name(self.shown_key or self.keys[0])

    @property
    def all_keys(self) -> str:
        """Every key for it; what has none is found among the commands."""
        return ", ".join(map(key_name, self.keys)) or "ctrl+p"

    @property
    def all_help(self) -> str:
        """What it does, and how the mouse does the same."""
        return f"{self.help} Mouse: {self.mouse}." if self.mouse else self.help


def key_name(key: str) -> str:
    """A key as a person reads it: `/`, `ctrl+p`."""
    return _KEY_NAMES.get(key, key)
