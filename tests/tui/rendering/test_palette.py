from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

import pytest
from rich.color import ColorSystem, ColorType
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gradtui.protocol.vocabulary import MEMORY_CATEGORIES, ParameterState
from gradtui.run.text.memory_parts import MEMORY_PARTS
from gradtui.tui.rendering.palette import DARK_THEME, LIGHT_THEME, STATE_ROLES, Palette, own_themes

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
def test_text_is_readable_on_cursor(theme: Theme) -> None:
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


def test_sixteen_colours_stay_with_reversed_cursor() -> None:
    made = palette(BUILTIN_THEMES["ansi-dark"])
    for category in MEMORY_CATEGORIES:
        colour = made.style(category).color
        assert colour.type is ColorType.STANDARD
    assert made.style("error@cursor").reverse
    assert made.style("error@cursor").color is None


def test_a_theme_may_set_a_role() -> None:
    theme = Theme(name="own", primary="#ff0000", variables={"gradtui-gradients": "#010203"})
    colour = palette(theme).style("gradients").color
    assert colour.triplet is not None
    assert tuple(colour.triplet) == (1, 2, 3)


def test_two_roles_share_a_cell() -> None:
    made = palette(DARK_THEME)
    both = made.style("ground on accent")
    assert both.bgcolor == made.style("accent").color


NORMAL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
"""G. M. Machado, M. M. Oliveira, L. A. F. Fernandes: A Physiologically-based Model for Simulation of Color Vision Deficiency.
IEEE TVCG 15(6), 2009. The matrices of severity 1.0, applied to linear RGB."""

SRGB_TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))


def _times(matrix: Iterable[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector)) for row in matrix]


def _lab(colour: Color, vision: Iterable[Sequence[float]]) -> list[float]:
    """The colour in CIE L*a*b* (D65), as somebody with this vision sees it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized]
    seen = [min(1.0, max(0.0, part)) for part in _times(vision, linear)]
    scaled = [part / white for part, white in zip(_times(SRGB_TO_XYZ, seen), (0.95047, 1.0, 1.08883))]
    x, y, z = (part ** (1 / 3) if part > 216 / 24389 else (24389 / 27 * part + 16) / 116 for part in scaled)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def _difference(a: Color, b: Color) -> float:
    """The least CIE 1976 colour difference of two colours, among the three kinds of vision. About 2.3 can just be seen."""
    return min(math.dist(_lab(a, vision), _lab(b, vision)) for vision in (NORMAL, PROTANOPIA, DEUTERANOPIA))


def test_the_difference_of_colours_by_known_values() -> None:
    black, white = Color.parse("#000000"), Color.parse("#ffffff")
    assert _lab(white, NORMAL) == pytest.approx([100, 0, 0], abs=0.02)
    assert _difference(black, white) == pytest.approx(100, abs=0.02)
    # sRGB red, by Lindbloom's calculator: L* 53.24, a* 80.09, b* 67.20.
    assert _lab(Color.parse("#ff0000"), NORMAL) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    # Each row of a matrix adds up to one: grey stays grey.
    for vision in (PROTANOPIA, DEUTERANOPIA):
        assert _lab(Color.parse("#808080"), vision)[1:] == pytest.approx([0, 0], abs=0.02)


def _front(made: Palette, role: str) -> Color:
    colour = made.style(role).color
    assert colour is not None
    return Color.from_rich_color(colour)


@pytest.mark.parametrize(("theme", "least"), [(DARK_THEME, 14), (LIGHT_THEME, 10)], ids=lambda value: str(value)[:12])
def test_states_differ_for_the_colour_blind(theme: Theme, least: float) -> None:
    colours = {role: _front(palette(theme), role) for role in STATE_ROLES.values() if role != "state-unknown"}
    for one, other in combinations(colours, 2):
        assert _difference(colours[one], colours[other]) >= least, (one, other)


@pytest.mark.parametrize(("theme", "adjacent", "any_two"), [(DARK_THEME, 20, 12), (LIGHT_THEME, 18, 10.8)])
def test_parts_of_memory_bar_differ_for_colour_blind(theme: Theme, adjacent: float, any_two: float) -> None:
    colours = [_front(palette(theme), role) for role in MEMORY_PARTS]
    for one, other in pairwise(colours):
        assert _difference(one, other) >= adjacent, (one, other)
    for one, other in combinations(colours, 2):
        assert _difference(one, other) >= any_two, (one, other)


def test_sixteen_colours_tell_states_apart() -> None:
    made = palette(BUILTIN_THEMES["ansi-dark"])
    assert len({made.style(role).color for role in STATE_ROLES.values()}) == len(STATE_ROLES)


@pytest.mark.parametrize("theme", OWN, ids=lambda theme: theme.name)
def test_text_has_the_contrast_of_wcag_aa(theme: Theme) -> None:
    made = palette(theme)
    grounds = [
        Color.parse(theme.background or ""),
        *(_back(made, f"text@{name}") for name in ("cursor", "cursor-blurred")),
    ]
    words = (*STATE_ROLES.values(), "text", "muted", "strong", "error", "warning", "good", "key", "pending", "accent")
    for role in words:
        for ground in grounds:
            assert _contrast(_front(made, role), ground) >= 4.5, (
                role,
                ground.hex,
                _contrast(_front(made, role), ground),
            )
    for role in MEMORY_PARTS[:-1]:
        assert _contrast(_front(made, role), grounds[0]) >= 3, role


def _in_256(colour: Color) -> Color:
    return Color.from_rich_color(colour.rich_color.downgrade(ColorSystem.EIGHT_BIT))


@pytest.mark.parametrize("index", [0, 1], ids=["dark", "light"])
def test_256_colours_keep_grounds_and_states_apart(index: int) -> None:
    theme = own_themes("256")[index]
    assert own_themes("truecolor")[index] == own_themes(None)[index] == OWN[index]
    assert theme.name == OWN[index].name
    made = palette(theme)
    background, panel = (_in_256(Color.parse(colour or "")) for colour in (theme.background, theme.panel))
    texts = [background, *(_in_256(_back(made, f"text@{name}")) for name in ("cursor", "cursor-blurred"))]
    assert len(set(texts)) == 3
    assert background != panel
    states = {role: _front(made, role) for role in STATE_ROLES.values() if role != "state-unknown"}
    assert list(states.values()) == [_in_256(colour) for colour in states.values()]
    for role in (*states, "text", "strong", "muted", "error", "warning", "good", "key", "accent"):
        for ground in texts:
            assert _contrast(_in_256(_front(made, role)), ground) >= (4.5 if role in states else 4), (role, ground.hex)
    for one, other in combinations(states, 2):
        assert _difference(states[one], states[other]) >= 6, (one, other)
    for one, other in pairwise(MEMORY_PARTS):
        assert _difference(_in_256(_front(made, one)), _in_256(_front(made, other))) >= 6, (one, other)
