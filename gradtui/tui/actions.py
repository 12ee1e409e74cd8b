"""Everything a person can do, declared once: key bindings, footer, command palette and help all come from this table.

An action named `x` is the method `action_x` of whatever its scope names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Scope = Literal["app", "dashboard", "tree"]

GROUPS = ("Training", "Model", "Moving", "Screen")


@dataclass(frozen=True)
class Action:
    """One thing a person can do."""

    id: str
    keys: tuple[str, ...]
    """Keys as Textual names them; the first one is shown."""
    label: str
    """One or two words for the footer."""
    help: str
    """A sentence for the help and the command palette."""
    group: str
    scope: Scope
    footer: int = 0
    """Place in the footer, from 1, the most important first; 0 keeps it out."""
    shown_keys: str = ""
    """The keys as help shows them, where that is not plain from `keys`."""
    priority: bool = False
    """Whether the key works while text is being typed and over a dialog."""
    in_palette: bool = True

    @property
    def title(self) -> str:
        """The label as a title, for the command palette."""
        return self.label[:1].upper() + self.label[1:]

    @property
    def key_text(self) -> str:
        """The key as the footer shows it."""
        return key_name(self.keys[0])


ACTIONS: tuple[Action, ...] = (
    Action("toggle_trainable", ("space",), "freeze", "Freeze the row under the cursor, or unfreeze it if nothing in it trains. "
           "Applied at the next step boundary; ▽ and △ mark what is on its way.", "Training", "app", footer=1,
           shown_keys="space, click on the letter"),
    Action("pause", ("p",), "pause", "Hold training at the next step boundary, or let it go on.", "Training", "app", footer=3),
    Action("run_one_step", ("n",), "step", "Run one optimizer step, then hold.", "Training", "app", footer=4),
    Action("interrupt", ("ctrl+c",), "interrupt", "Send the script a Ctrl+C (KeyboardInterrupt), as in a plain terminal.",
           "Training", "app", priority=True),
    Action("leave", ("q", "ctrl+q"), "leave", "Stop training, or leave the screen and let it run.", "Training", "app",
           footer=7),
    Action("explain", ("enter",), "why", "Say what the row is, what happens to it and why, with the numbers.", "Model", "app",
           footer=2, shown_keys="enter, double click"),
    Action("filter", ("slash",), "filter", "Show only rows whose path contains a text, or matches a glob such as *.bias.",
           "Model", "dashboard", footer=5),
    Action("clear_filter", ("escape",), "clear filter", "Show every row again.", "Model", "dashboard"),
    Action("next_problem", ("exclamation_mark", "right_square_bracket"), "next problem",
           "Go to the next parameter that is unreached, orphaned, zero, skipped, not finite, or moved while frozen.",
           "Model", "dashboard", footer=9),
    Action("fold_or_parent", ("left", "h"), "fold", "Fold the module, or go to the one above.", "Model", "tree"),
    Action("unfold_or_child", ("right", "l"), "unfold", "Unfold the module, or go to its first row.", "Model", "tree"),
    Action("toggle_fold", ("z",), "fold or unfold", "Fold or unfold the module.", "Model", "tree",
           shown_keys="z, click on the arrow"),
    Action("fold_all", ("minus",), "fold all", "Fold everything below the first level.", "Model", "tree"),
    Action("unfold_all", ("plus",), "unfold all", "Unfold every module.", "Model", "tree"),
    Action("cursor_up", ("up", "k"), "up", "One row up.", "Moving", "tree", in_palette=False),
    Action("cursor_down", ("down", "j"), "down", "One row down.", "Moving", "tree", in_palette=False),
    Action("page_up", ("pageup",), "page up", "One page up.", "Moving", "tree", in_palette=False),
    Action("page_down", ("pagedown",), "page down", "One page down.", "Moving", "tree", in_palette=False),
    Action("first_row", ("home",), "first row", "To the first row.", "Moving", "tree", in_palette=False),
    Action("last_row", ("end",), "last row", "To the last row.", "Moving", "tree", in_palette=False),
    Action("next_panel", ("tab",), "panel", "Show the next panel: output or events, and on a narrow screen memory or gradients.",
           "Screen", "dashboard", footer=6),
    Action("move_focus", ("shift+tab",), "move focus", "Move the keys between the tree and the panel of lines, to scroll it.",
           "Screen", "dashboard"),
    Action("show_memory", ("m",), "memory", "Show the memory panel.", "Screen", "dashboard"),
    Action("show_gradients", ("g",), "gradients", "Show the gradient panel.", "Screen", "dashboard"),
    Action("show_output", ("o",), "output", "Show what the script prints.", "Screen", "dashboard"),
    Action("show_events", ("e",), "events", "Show what was found, applied and refused.", "Screen", "dashboard"),
    Action("help", ("question_mark", "f1"), "help", "Show the keys, and what letters, marks and colours mean.", "Screen", "app",
           footer=8),
    Action("command_palette", ("ctrl+p",), "commands", "Find any of these by name.", "Screen", "app", in_palette=False),
    Action("toggle_light", ("ctrl+t",), "light or dark", "Change between the dark and the light theme.", "Screen", "app"),
    Action("change_theme", (), "theme", "Choose among all themes.", "Screen", "app"),
)  # fmt: skip

_KEY_NAMES = {
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


def key_name(key: str) -> str:
    """A key as a person reads it: `/`, `ctrl+p`."""
    return _KEY_NAMES.get(key, key)


def bindings(scope: Scope) -> list[BindingType]:
    """The key bindings of whatever handles the actions of a scope."""
    return [
        Binding(",".join(action.keys), action.id, action.label, show=False, priority=action.priority, id=action.id)
        for action in ACTIONS
        if action.scope == scope and action.keys
    ]


def footer_actions() -> list[Action]:
    """Actions of the footer, the most important first."""
    return sorted((action for action in ACTIONS if action.footer), key=lambda action: action.footer)


def by_group(actions: Iterable[Action] = ACTIONS) -> list[tuple[str, list[Action]]]:
    """Actions under the headings of the help."""
    listed = list(actions)
    return [(group, [action for action in listed if action.group == group]) for group in GROUPS]


def shown_keys(action: Action) -> str:
    """All keys of an action, for the help."""
    return action.shown_keys or ", ".join(map(key_name, action.keys)) or "ctrl+p"
