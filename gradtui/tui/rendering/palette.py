"""The colours and styles of every role in a theme, defined only here, so that a category has the same colour everywhere.

Roles are resolved here rather than by component classes of each widget: one table for the whole screen, rebuilt only when the
theme changes. A theme may set any role by a variable of the name `gradtui-ROLE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from gradtui.protocol.vocabulary import ParameterState, Phase
from gradtui.run.state.findings import Level
from gradtui.run.text.units import DASH
from gradtui.tui.rendering.lines import Span
from gradtui.tui.rendering.script_colours import PREFIX as SCRIPT
from gradtui.tui.rendering.script_colours import script_style

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
    accent="#935600",
    warning="#935600",
    error="#c02434",
    success="#0f773f",
    foreground="#20252e",
    background="#fafbfc",
    surface="#ffffff",
    panel="#eef1f5",
    dark=False,
    variables={"border-blurred": "#c3cbd8", "border": "#0b63b5", "footer-key-foreground": "#0b63b5"},
)

_DARK_IN_256 = {
    "state-trained": "#5fd787", "state-zero": "#ffd75f", "state-unreached": "#d7875f", "state-flow-through": "#5fafd7",
    "state-cut": "#afd7ff", "state-orphan": "#ffaf5f", "state-moved": "#ff87af", "state-not-finite": "#ff5f87",
    "state-skipped": "#afafff", "cursor": "#303030", "cursor-blurred": "#262626", "rule": "#444444", "faint": "#767676",
}  # fmt: skip
_LIGHT_IN_256 = {
    "state-trained": "#005f5f", "state-zero": "#875f00", "state-unreached": "#870000", "state-flow-through": "#005f87",
    "state-cut": "#4e4e4e", "state-orphan": "#5f0000", "state-moved": "#af0087", "state-not-finite": "#af005f",
    "state-skipped": "#005faf", "cursor": "#eeeeee", "cursor-blurred": "#f4f4f4", "rule": "#bcbcbc", "faint": "#8a8a8a",
    "other": "#6c6c6c",
}  # fmt: skip
"""Roles on a screen of 256 colours, where colours that are near each other become the same."""


def own_themes(colours: str | None) -> tuple[Theme, Theme]:
    """Return gradtui's dark and light themes.

    Args:
        colours: the colours of the terminal, as Rich names them; `256` gives grounds that are apart in 256 colours too.
    """
    if colours != "256":
        return DARK_THEME, LIGHT_THEME
    dark = replace(DARK_THEME, background="#121212", surface="#1c1c1c", panel="#1c1c1c", foreground="#dadada")
    light = replace(
        LIGHT_THEME, background="#ffffff", surface="#ffffff", panel="#f4f4f4", foreground="#262626", success="#005f5f"
    )
    return (
        replace(dark, variables=dark.variables | {"border-blurred": "#444444"} | _as_variables(_DARK_IN_256)),
        replace(light, variables=light.variables | {"border-blurred": "#bcbcbc"} | _as_variables(_LIGHT_IN_256)),
    )


def _as_variables(roles: Mapping[str, str]) -> dict[str, str]:
    return {f"{_PREFIX}{role}": colour for role, colour in roles.items()}


_PREFIX = "gradtui-"

STATE_ROLES: dict[str, str] = {state.value: f"state-{state.name.lower().replace('_', '-')}" for state in ParameterState}
"""The role of each state letter."""

PHASE_ROLES = {phase: f"phase-{phase.value}" for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)}
"""The role of each phase that has one of its own."""

LEVEL_ROLES = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "muted"}
"""The role of each level of findings."""

STALE = "faint"
"""The role of a value that is old (see `state.freshness`)."""


def phase_role(phase: Phase) -> str:
    """Return the role of a phase."""
    return PHASE_ROLES.get(phase, "phase-other")


def state_letter(letter: str) -> Span:
    """Return a state's letter as shown: an unknown state is a dash, as everywhere else."""
    return DASH if letter == ParameterState.UNKNOWN.value else letter, STATE_ROLES.get(letter, "text")


_COLOURS = {
    "faint": ("#5f6b82", "#8b96a8", "ansi_bright_black"),
    "rule": ("#343c4c", "#c3cbd8", "ansi_bright_black"),
    "cursor": ("#25324a", "#dceaf9"),
    "cursor-blurred": ("#1f2530", "#e9eef5"),
    "parameters": ("#307ecf", "#1f74d8", "ansi_blue"),
    "gradients": ("#e99a45", "#c26203", "ansi_yellow"),
    "buckets": ("#c9603f", "#7c1d00", "ansi_bright_yellow"),
    "optimizer_state": ("#c38ff4", "#8f41c0", "ansi_magenta"),
    "activations": ("#5cc991", "#11906a", "ansi_green"),
    "input": ("#eb8fbc", "#870045", "ansi_red"),
    "offloaded": ("#81dff5", "#4d7e76", "ansi_bright_cyan"),
    "buffers": ("#ffe782", "#8e743c", "ansi_cyan"),
    "other": ("#788297", "#5e7594", "ansi_white"),
    "temporaries": ("#b3a78f", "#6b5d42", "ansi_bright_white"),
    "at_load": ("#414b5e", "#bcc5d3", "ansi_bright_black"),
    "phase-forward": ("#57a08a", "#2f7f69", "ansi_green"),
    "phase-backward": ("#c08a52", "#a8641f", "ansi_yellow"),
    "phase-optimizer": ("#977ab8", "#7a55a3", "ansi_magenta"),
    "phase-other": ("#5f6b82", "#8b96a8", "ansi_bright_black"),
    "device-requested": ("#9bbf86", "#4f7a2e", "ansi_green"),
    "device-rounding": ("#d58a70", "#a8502f", "ansi_red"),
    "device-cached": ("#84bfd4", "#1d7d92", "ansi_cyan"),
    "device-context": ("#bd8fb4", "#8a4f80", "ansi_magenta"),
    "device-outside": ("#7c8699", "#6d7789", "ansi_white"),
    "state-trained": ("#5fd38d", "#007844", "ansi_green"),
    "state-zero": ("#fcdc51", "#88612b", "ansi_yellow"),
    "state-unreached": ("#e78a4f", "#b44509", "ansi_red"),
    "state-flow-through": ("#6ac6f2", "#2c6da1", "ansi_cyan"),
    "state-cut": ("#aebbd2", "#5e697e", "ansi_bright_black"),
    "state-orphan": ("#f8ae4f", "#843c00", "ansi_bright_yellow"),
    "state-moved": ("#fe79b1", "#b7256e", "ansi_magenta"),
    "state-not-finite": ("#fe6b6b", "#be2a47", "ansi_bright_red"),
    "state-skipped": ("#a3a2fe", "#594598", "ansi_bright_magenta"),
    "curve-1": ("#6cb2eb", "#0b63b5", "ansi_bright_blue"),
    "curve-2": ("#f0b429", "#b36b00", "ansi_yellow"),
    "curve-3": ("#a88bd8", "#7a4fb5", "ansi_magenta"),
    "curve-4": ("#5fc9a8", "#0f8f6a", "ansi_green"),
    "curve-5": ("#ef8fb0", "#c2407a", "ansi_red"),
    "curve-6": ("#c9cf6a", "#7a7000", "ansi_cyan"),
    "reference": ("#8b97ad", "#6a7488", "ansi_white"),
}
"""The colour of each role in dark, light and ANSI themes. The cursor has none in ANSI themes: there its row is reversed."""

_BOLD = frozenset(
    {"strong", "ground", "error", "key", "title", "pending", "state-not-finite", "state-moved", "state-trained"}
)


_MAX_STYLES = 2_000
"""Styles that are kept: a script may use millions of colours."""


class Palette:
    """Styles of the roles in one theme. Not thread-safe; used on the UI thread."""

    def __init__(self, theme: Theme, variables: Mapping[str, str]) -> None:
        self._colours = {role: Color.parse(text) for role, text in _role_colours(theme, variables).items()}
        self._styles: dict[str, Style] = {"": Style.null()}
        self._theme, self._ends = theme, (variables["foreground"], variables["background"])

    def style(self, role: str) -> Style:
        """Return the style of a role, of `a on b`, or of `a@ground` (role a on a row that is drawn on `ground`)."""
        style = self._styles.get(role)
        if style is None:
            if len(self._styles) > _MAX_STYLES:
                self._styles = {"": Style.null()}
            style = self._styles[role] = self._build(role)
        return style

    def _build(self, role: str) -> Style:
        if role.startswith(SCRIPT):
            return script_style(role, *self._ends, dark=self._theme.dark, ansi=self._theme.ansi)
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
    column = 2 if theme.ansi else 0 if theme.dark else 1
    colours = {role: columns[column] for role, columns in _COLOURS.items() if column < len(columns)}
    foreground, background = variables["foreground"], variables["background"]
    if theme.ansi:
        colours |= {"muted": foreground, "text": foreground, "strong": foreground}
    else:
        front, back = Color.parse(foreground), Color.parse(background)
        colours |= {"text": foreground, "strong": foreground, "muted": back.blend(front, 0.72).hex}
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
    return colours | {name[len(_PREFIX) :]: value for name, value in variables.items() if name.startswith(_PREFIX)}
