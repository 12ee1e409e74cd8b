"""The colours of the script's output in the themes of the dashboard."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gradtui.transport.text_styles import StyledLine
from gradtui.tui.rendering import DARK_THEME, LIGHT_THEME, Palette, compact, styled_spans
from gradtui.tui.rendering.script_colours import _contrast

COLOURS = ["", *map(str, range(16)), "#ffffff", "#000000", "#808080", "#fafbfc", "#12151b", "#ffff00", "#00008b"]
THEMES = [DARK_THEME, LIGHT_THEME, *(theme for theme in BUILTIN_THEMES.values() if not theme.ansi)]


def palette(theme: Theme) -> tuple[Palette, Color]:
    variables = theme.to_color_system().generate()
    return Palette(theme, variables), Color.parse(variables["background"])


def role(style: str) -> str:
    ((_, found),) = styled_spans(StyledLine("text", ((0, style),)))
    return found


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("attributes", ["", "b", "r", "d"])
def test_every_colour_can_be_read_on_every_background(theme: Theme, attributes: str) -> None:
    made, background = palette(theme)
    for colour in COLOURS:
        for ground in COLOURS:
            if not (attributes or colour or ground):
                continue
            style = made.style(role(f"{attributes}:{colour}:{ground}"))
            assert style.color is not None
            front = Color.from_rich_color(style.color)
            back = Color.from_rich_color(style.bgcolor) if style.bgcolor is not None else background
            assert _contrast(front, back) >= (2.9 if "d" in attributes else 4.4), (colour, ground)


def test_light_theme_darkens_and_keeps_hue() -> None:
    made, _ = palette(LIGHT_THEME)
    for white in ("7", "15", "#ffffff"):
        style = made.style(role(f":{white}:"))
        assert style.color is not None
        assert Color.from_rich_color(style.color).brightness < 0.5
    red = made.style(role(":1:")).color
    assert red.triplet.red > 2 * red.triplet.green


@pytest.mark.parametrize(("name", "lost"), [("ansi-dark", "0"), ("ansi-light", "15")])
def test_themes_of_ansi_colours_leave_colours_to_terminal(name: str, lost: str) -> None:
    theme = BUILTIN_THEMES[name]
    made = Palette(theme, theme.to_color_system().generate())
    red = made.style(role("b:1:"))
    assert (red.color.number, red.bold) == (1, True)
    assert made.style(role(f":{lost}:")).color is None


def test_underlined_blanks_are_not_joined() -> None:
    line = styled_spans(StyledLine("a   b", ((1, "u::"), (4, ""))))
    assert [text for text, _ in compact(line)] == ["a", "   ", "b"]


def test_the_styles_that_are_kept_are_bounded() -> None:
    made, _ = palette(DARK_THEME)
    for number in range(10_000):
        made.style(role(f":#{number:06x}:"))
    assert len(made._styles) < 3_000
