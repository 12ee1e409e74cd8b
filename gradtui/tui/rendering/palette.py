"""The colours and styles of every role in a theme, defined only here, so that a category has the same colour everywhere.

Roles are resolved here rather than by component classes of each widget: one table for the whole screen, rebuilt only when the
theme changes. A theme may set any role by a variable of the name `gradtui-ROLE`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gradtui.protocol.vocabulary import ParameterState
from gradtui.text import DASH
from gradtui.tui.rendering.lines import Span

DARK_THEME = Theme(
    name="gradtui-dark",
    primary="#6cb2eb",
    secondary="#8f9bb3",
    accent="#f0b429",
    warning="#f0b429",
    error="#ff6b6b",
    success="#5fd38d",
    foreground="#d7dce5",
    background="#12151b",
    surface="#1a1e27",
    panel="#1e232d",
    dark=True,
    variables={"border-blurred": "#343c4c", "border": "#6cb2eb", "footer-key-foreground": "#6cb2eb"},
)

LIGHT_THEME = Theme(
    name="gradtui-light",
    primary="#0b63b5",
    secondary="#5a6680",
    accent="#9a5b00",
    warning="#9a5b00",
    error="#c02434",
    success="#157f45",
    foreground="#20252e",
    background="#fafbfc",
    surface="#ffffff",
    panel="#eef1f5",
    dark=False,
    variables={"border-blurred": "#c3cbd8", "border": "#0b63b5", "footer-key-foreground": "#0b63b5"},
)

STATE_ROLES: dict[str, str] = {state.value: f"state-{state.name.lower().replace('_', '-')}" for state in ParameterState}
"""The role of each state letter."""


def state_letter(letter: str) -> Span:
    """Return a state's letter as shown: an unknown state is a dash, as everywhere else."""
    return DASH if letter == ParameterState.UNKNOWN.value else letter, STATE_ROLES.get(letter, "text")


_DARK = {
    "faint": "#5f6b82",
    "rule": "#343c4c",
    "cursor": "#25324a",
    "cursor-blurred": "#1f2530",
    "parameters": "#5b9cf0",
    "gradients": "#f0a04b",
    "optimizer_state": "#c08bf0",
    "activations": "#4fc9a4",
    "input": "#f08fb0",
    "offloaded": "#7fdcf0",
    "buffers": "#e6d06c",
    "other": "#7f8aa0",
    "at_load": "#414b5e",
    "device-requested": "#9bbf86",
    "device-rounding": "#d58a70",
    "device-cached": "#84bfd4",
    "device-context": "#bd8fb4",
    "device-outside": "#7c8699",
    "state-trained": "#5fd38d",
    "state-zero": "#f0d048",
    "state-unreached": "#ff9f68",
    "state-flow-through": "#62c4f0",
    "state-cut": "#8b97ad",
    "state-orphan": "#ffb454",
    "state-moved": "#ff7ab2",
    "state-not-finite": "#ff6b6b",
    "state-skipped": "#e8e08a",
    "curve-1": "#6cb2eb",
    "curve-2": "#f0b429",
    "curve-3": "#a88bd8",
    "curve-4": "#5fc9a8",
    "curve-5": "#ef8fb0",
    "curve-6": "#c9cf6a",
    "reference": "#8b97ad",
}

_LIGHT = {
    "faint": "#8b96a8",
    "rule": "#c3cbd8",
    "cursor": "#d6e6f8",
    "cursor-blurred": "#e9eef5",
    "parameters": "#1f6fd0",
    "gradients": "#c26204",
    "optimizer_state": "#8a42c8",
    "activations": "#0f8f6a",
    "input": "#c2407a",
    "offloaded": "#0b7d94",
    "buffers": "#8f7500",
    "other": "#6a7488",
    "at_load": "#bcc5d3",
    "device-requested": "#4f7a2e",
    "device-rounding": "#a8502f",
    "device-cached": "#1d7d92",
    "device-context": "#8a4f80",
    "device-outside": "#6d7789",
    "state-trained": "#157f45",
    "state-zero": "#8a6d00",
    "state-unreached": "#b9480c",
    "state-flow-through": "#0a6fa8",
    "state-cut": "#5f6b80",
    "state-orphan": "#a65a00",
    "state-moved": "#b8246e",
    "state-not-finite": "#c02434",
    "state-skipped": "#7a7000",
    "curve-1": "#0b63b5",
    "curve-2": "#b36b00",
    "curve-3": "#7a4fb5",
    "curve-4": "#0f8f6a",
    "curve-5": "#c2407a",
    "curve-6": "#7a7000",
    "reference": "#6a7488",
}

_ANSI = {
    "faint": "ansi_bright_black",
    "rule": "ansi_bright_black",
    "parameters": "ansi_blue",
    "gradients": "ansi_yellow",
    "optimizer_state": "ansi_magenta",
    "activations": "ansi_green",
    "input": "ansi_red",
    "offloaded": "ansi_bright_cyan",
    "buffers": "ansi_cyan",
    "other": "ansi_white",
    "at_load": "ansi_bright_black",
    "device-requested": "ansi_green",
    "device-rounding": "ansi_red",
    "device-cached": "ansi_cyan",
    "device-context": "ansi_magenta",
    "device-outside": "ansi_white",
    "state-trained": "ansi_green",
    "state-zero": "ansi_yellow",
    "state-unreached": "ansi_red",
    "state-flow-through": "ansi_cyan",
    "state-cut": "ansi_bright_black",
    "state-orphan": "ansi_yellow",
    "state-moved": "ansi_magenta",
    "state-not-finite": "ansi_bright_red",
    "state-skipped": "ansi_yellow",
    "curve-1": "ansi_bright_blue",
    "curve-2": "ansi_yellow",
    "curve-3": "ansi_magenta",
    "curve-4": "ansi_green",
    "curve-5": "ansi_red",
    "curve-6": "ansi_cyan",
    "reference": "ansi_white",
}

_BOLD = frozenset(
    {"strong", "ground", "error", "key", "title", "pending", "state-not-finite", "state-moved", "state-trained"}
)


class Palette:
    """Styles of the roles in one theme. Not thread-safe; used on the UI thread."""

    def __init__(self, theme: Theme, variables: Mapping[str, str]) -> None:
        self._colours = {role: Color.parse(text) for role, text in _role_colours(theme, variables).items()}
        self._styles: dict[str, Style] = {"": Style.null()}

    def style(self, role: str) -> Style:
        """Return the style of a role, of `a on b`, or of `a@ground` (role a on a row that is drawn on `ground`)."""
        style = self._styles.get(role)
        if style is None:
            style = self._styles[role] = self._build(role)
        return style

    def _build(self, role: str) -> Style:
        if "@" in role:
            inner, _, ground = role.partition("@")
            colour = self._colours.get(ground)
            if colour is None:
                # None of the sixteen ANSI colours is a quiet background: the row is reversed, and only its letters
                # carry information.
                return Style(reverse=True, bold=self.style(inner).bold)
            return Style(bgcolor=colour.rich_color) + self.style(inner)
        front, _, back = role.partition(" on ")
        colour = self._colours.get(front)
        bold = True if front in _BOLD else None
        style = Style(color=colour.rich_color if colour else None, bold=bold)
        return style + Style(bgcolor=self._colours[back].rich_color) if back in self._colours else style


def _role_colours(theme: Theme, variables: Mapping[str, str]) -> dict[str, str]:
    colours = dict(_ANSI if theme.ansi else _DARK if theme.dark else _LIGHT)
    foreground, background = variables["foreground"], variables["background"]
    if theme.ansi:
        colours |= {"muted": foreground, "text": foreground, "strong": foreground}
    else:
        front, back = Color.parse(foreground), Color.parse(background)
        colours |= {"text": foreground, "strong": foreground, "muted": back.blend(front, 0.6).hex}
        if theme.name not in (DARK_THEME.name, LIGHT_THEME.name):
            colours["cursor"] = back.blend(Color.parse(variables["primary"]), 0.25).hex
            colours["cursor-blurred"] = back.blend(Color.parse(variables["primary"]), 0.12).hex
            colours["faint"] = back.blend(front, 0.35).hex
            colours["rule"] = back.blend(front, 0.2).hex
    colours |= {
        "good": variables["success"],
        "warning": variables["warning"],
        "error": variables["error"],
        "accent": variables["primary"],
        "ground": background,
        "key": variables["primary"],
        "title": variables["foreground"],
        "pending": variables["warning"],
        "state-unknown": colours["muted"],
        "spark": colours["curve-1"],
        "axis": colours["faint"],
        "tick": colours["muted"],
        "legend": colours["muted"],
        "alarm": variables["error"],
    }
    for role in [role for role in colours if role.startswith("curve-")]:
        # The raw curve under an average: a blend of its colour with the background.
        faint = Color.parse(background).blend(Color.parse(colours[role]), 0.45).hex if not theme.ansi else None
        colours[f"{role}-raw"] = faint or colours["faint"]
    prefix = "gradtui-"
    return colours | {name[len(prefix) :]: value for name, value in variables.items() if name.startswith(prefix)}
