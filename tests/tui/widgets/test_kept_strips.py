from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from helpers.app_session import Session, session
from helpers.fakes import coop_model, coop_states, training_step
from textual._styles_cache import StylesCache
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from gradtui.tui.rendering import DARK_THEME, LIGHT_THEME
from gradtui.tui.widgets import KeptStrips

THEMES = (DARK_THEME.name, LIGHT_THEME.name, "nord", "ansi-dark")


def kept(run: Session) -> Iterator[KeptStrips]:
    """The widgets in sight that keep their strips."""
    screen = run.app.screen
    for widget in (screen, *screen.query(Widget)):
        if isinstance(widget, KeptStrips) and widget.region.area and widget.display:
            yield widget


def shown(widget: KeptStrips) -> list[Strip]:
    return widget.render_lines(widget.outer_size.region)


def drawn_by_textual(widget: KeptStrips) -> list[Strip]:
    """The strips that Textual draws with all its filters, from nothing."""
    ground = widget.background_colors[1]
    strips = StylesCache().render_widget(widget, widget.outer_size.region)
    for each in widget.app.get_line_filters():
        strips = [strip.apply_filter(each, ground) for strip in strips]
    return strips


def check(run: Session) -> None:
    widgets = list(kept(run))
    assert {widget.id for widget in widgets} >= {"header", "body", "tree-pane", "columns", "tree", "gradients", "why"}
    for widget in widgets:
        assert shown(widget) == drawn_by_textual(widget), widget


@pytest.mark.parametrize("no_color", [False, True], ids=["colours", "NO_COLOR"])
async def test_kept_strips_are_what_textual_draws(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    states, _ = coop_states(coop_model())
    async with session((160, 50)) as run:
        check(run)
        await run.put(*training_step(coop_model(), states, 41))
        check(run)
        await run.press("down")
        check(run)
        for theme in THEMES:
            run.app.theme = theme
            await run.pilot.pause()
            check(run)
        for size in ((80, 24), (160, 50)):
            await run.pilot.resize_terminal(*size)
            await run.pilot.pause()
            check(run)
        await run.press("tab")
        check(run)


async def test_a_new_theme_shows_at_once() -> None:
    async with session((160, 50)) as run:
        dark = {widget.id: shown(widget) for widget in kept(run)}
        run.app.theme = LIGHT_THEME.name
        await run.pilot.pause()
        for widget in kept(run):
            assert shown(widget) != dark[widget.id], widget


async def test_theme_that_changes_only_role_shows_at_once() -> None:
    async with session((160, 50)) as run:
        tree, before = run.dashboard.tree_view, shown(run.dashboard.tree_view)
        other = replace(DARK_THEME, name="other-text", variables=DARK_THEME.variables | {"gradtui-text": "#ff0000"})
        run.app.register_theme(other)
        run.app.theme = other.name
        await run.pilot.pause()
        assert shown(tree) != before
        # Textual's notice alone must do, without a rule of a style sheet that changed.
        before = shown(tree)
        tree.notify_style_update()
        assert shown(tree) is not before


async def test_lines_have_new_width_before_widget_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((160, 50)) as run:
        tree = run.dashboard.tree_view
        wide = tree.outer_size
        assert {strip.cell_length for strip in shown(tree)} == {wide.width}
        monkeypatch.setattr(type(tree), "outer_size", Size(wide.width - 9, wide.height))
        assert {strip.cell_length for strip in shown(tree)} == {wide.width - 9}


async def test_only_what_changed_is_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[str | None] = []
    states, _ = coop_states(coop_model())
    async with session((160, 50)) as run:
        for kind in {type(widget) for widget in kept(run)}:

            def paint(self: KeptStrips, *arguments: object, before: object = kind.paint) -> list[Strip]:
                painted.append(self.id)
                return before(self, *arguments)  # type: ignore[operator,no-any-return]

            monkeypatch.setattr(kind, "paint", paint)
        run.source.put(*training_step(coop_model(), states, 41))
        run.app._drain()
        await run.pilot.pause()
        painted.clear()
        run.dashboard.draw("tree")
        await run.pilot.pause()
        # The legend of the curves has the norms of the step that the tree shows.
        assert sorted(map(str, painted)) == ["gradients", "tree"]
        painted.clear()
        run.app._draw_header()
        await run.pilot.pause()
        assert painted == ["header"]
