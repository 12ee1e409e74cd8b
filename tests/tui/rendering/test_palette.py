from __future__ import annotations

import pytest
from rich.color import ColorType
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, ParameterState
from gradtui.tui.rendering.palette import DARK_THEME, LIGHT_THEME, STATE_ROLES, Palette

THEMES = [DARK_THEME, LIGHT_THEME, *BUILTIN_THEMES.values()]
OWN = [DARK_THEME, LIGHT_THEME]
ROLES = [*STATE_ROLES.values(), *MEMORY_CATEGORIES, "text", "muted", "faint", "strong", "error", "warning", "good",
         "key", "pending", "spark", "axis", "tick", "curve-1", "curve-2", "accent", "rule"]  # fmt: skip


def palette(theme: Theme) -> Palette:
    return Palette(theme, theme.to_color_system().generate() | theme.variables)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_role_has_a_colour_in_every_theme(theme: Theme) -> None:
    made = palette(theme)
    for role in ROLES:
        assert made.style(role).color is not None, role


@pytest.mark.parametrize("theme", OWN, ids=lambda theme: theme.name)
def test_text_can_be_read_on_the_background_and_on_the_cursor(theme: Theme) -> None:
    made = palette(theme)
    grounds = [
        Color.parse(theme.background or ""),
        *(_back(made, f"text@{name}") for name in ("cursor", "cursor-blurred")),
    ]
    for role in (role for role in ROLES if role not in ("faint", "axis", "rule")):
        colour = made.style(role).color
        assert colour is not None
        front = Color.from_rich_color(colour)
        # 3:1 is what WCAG asks of large text and of graphics.
        assert all(_contrast(front, ground) >= 3 for ground in grounds), role


def _back(made: Palette, role: str) -> Color:
    colour = made.style(role).bgcolor
    assert colour is not None
    return Color.from_rich_color(colour)


def _contrast(a: Color, b: Color) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("theme", OWN, ids=lambda theme: theme.name)
def test_memory_categories_differ_in_colour(theme: Theme) -> None:
    made = palette(theme)
    assert len({made.style(category).color for category in MEMORY_CATEGORIES}) == len(MEMORY_CATEGORIES)


def test_every_state_has_a_role() -> None:
    assert set(STATE_ROLES) == {state.value for state in ParameterState}


def test_sixteen_colours_stay_sixteen_colours_and_the_cursor_is_reversed() -> None:
    made = palette(BUILTIN_THEMES["ansi-dark"])
    for category in MEMORY_CATEGORIES:
        colour = made.style(category).color
        assert colour is not None
        assert colour.type is ColorType.STANDARD
    assert made.style("error@cursor").reverse
    assert made.style("error@cursor").color is None


def test_a_theme_may_set_a_role() -> None:
    theme = Theme(name="own", primary="#ff0000", variables={"gradtui-gradients": "#010203"})
    colour = palette(theme).style("gradients").color
    assert colour is not None
    assert colour.triplet is not None
    assert tuple(colour.triplet) == (1, 2, 3)


def test_two_roles_share_a_cell() -> None:
    made = palette(DARK_THEME)
    both = made.style("ground on accent")
    assert both.bgcolor == made.style("accent").color
