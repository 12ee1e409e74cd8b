"""The colours that a script gives to its output, in a theme where all of them can be read.

The ANSI colours are those of the theme, so white text is dark in a light theme. Any other colour keeps its hue, and is made
lighter or darker until it stands out from what is behind it.
"""

from __future__ import annotations

from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.style import Style
from textual.color import Color

from gradtui.transport.text_styles import StyledLine
from gradtui.tui.rendering.lines import Line, printable

PREFIX = "script "
"""The beginning of the roles of text with a style of the script (see `transport.text_styles`)."""

_DARK_TEXT = (
    "#8b97ad", "#ff6b6b", "#5fd38d", "#f0c24b", "#6cb2eb", "#c38ff4", "#5fd0d8", "#d7dce5",
    "#8b97ad", "#ff9d9d", "#94ebb5", "#ffe08a", "#a3cff6", "#dcb8fb", "#97e8ee", "#ffffff",
)  # fmt: skip
_LIGHT_TEXT = (
    "#20252e", "#b3202f", "#0f6f3b", "#7d5200", "#0b5cab", "#84389f", "#0a6676", "#5a6478",
    "#5a6478", "#c02434", "#0c7a40", "#8a5a00", "#1f63c4", "#9a3fb8", "#0d7182", "#20252e",
)  # fmt: skip
"""Text in the ANSI colours on the background of the theme."""

_ON_DARK = ("#343c4c", *_DARK_TEXT[1:7], "#b9c1cf", "#6b768c", *_DARK_TEXT[9:])
_ON_LIGHT = ("#20252e", *_LIGHT_TEXT[1:7], "#dfe4ec", "#8b96a8", *_LIGHT_TEXT[9:15], "#ffffff")
"""The ANSI colours as a background, and text on such a background."""

_MIN_CONTRAST, _MIN_OF_DIM = 4.5, 3.0
"""The contrast that WCAG 2 asks of text, and of what need not be read."""

_SHARE_OF_DIM = 0.4


def styled_spans(line: StyledLine) -> Line:
    """Return a line of output as spans: text without control characters, and a role for each style."""
    return tuple((printable(text), _role(style) if style else "text") for text, style in line.spans())


def _role(style: str) -> str:
    attributes, _, ground = style.split(":")
    # Blanks show these, so they are no blanks that could be joined to a neighbour with the same background.
    shown = f"{ground}:{attributes}" if ground or "u" in attributes or "r" in attributes else ""
    return f"{PREFIX}{style}" + (f" on {shown}" if shown else "")


def script_style(role: str, foreground: str, background: str, *, dark: bool, ansi: bool) -> Style:
    """Return the style of a role of `styled_spans` in a theme with these colours.

    In a theme of ANSI colours the terminal decides what they look like: only text in the colour of the background is changed.
    """
    attributes, colour, ground = role.removeprefix(PREFIX).partition(" on ")[0].split(":")
    shape = Style(bold="b" in attributes or None, italic="i" in attributes or None, underline="u" in attributes or None)
    if ansi:
        unreadable = ("0",) if dark else ("7", "15")
        named = _terminal_colour(colour) if ground or colour not in unreadable else None
        dim, reverse = "d" in attributes or None, "r" in attributes or None
        return shape + Style(color=named, bgcolor=_terminal_colour(ground), dim=dim, reverse=reverse)
    text, on_ground = (_DARK_TEXT, _ON_DARK) if dark else (_LIGHT_TEXT, _ON_LIGHT)
    is_filled = bool(ground) or "r" in attributes
    front = _theme_colour(colour, on_ground if is_filled else text, foreground)
    back = _theme_colour(ground, on_ground, background)
    if "r" in attributes:
        front, back = back, front
    is_dim = "d" in attributes
    if is_dim:
        front = front.blend(back, _SHARE_OF_DIM)
    front = _readable(front, back, _MIN_OF_DIM if is_dim else _MIN_CONTRAST)
    return shape + Style(color=front.rich_color, bgcolor=back.rich_color if is_filled else None)


def _theme_colour(name: str, table: tuple[str, ...], default: str) -> Color:
    return Color.parse(table[int(name)] if name.isdecimal() else name or default)


def _terminal_colour(name: str) -> RichColor | None:
    if not name:
        return None
    return (RichColor.from_ansi(int(name)) if name.isdecimal() else RichColor.parse(name)).downgrade(
        ColorSystem.STANDARD
    )


def _readable(front: Color, back: Color, least: float) -> Color:
    """Return the colour nearest to `front`, on the way to white or black, that stands out from `back`."""
    end = max((Color(255, 255, 255), Color(0, 0, 0)), key=lambda colour: _contrast(colour, back))
    for tenth in range(11):
        mixed = front.blend(end, tenth / 10)
        if _contrast(mixed, back) >= least:
            return mixed
    return end


def _contrast(first: Color, second: Color) -> float:
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
