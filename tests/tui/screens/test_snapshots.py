"""A few pictures of the whole screen. After a change on purpose: `pytest tests/tui/screens --snapshot-update`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers import step_memory
from helpers.fakes import MIB, PrintedLog, RecordingSink, ScriptedSource, coop_chain, coop_model, coop_run
from textual.pilot import Pilot

from gradtui.protocol import events as ev
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.rendering.palette import DARK_THEME, LIGHT_THEME

LOG = (
    *(f"epoch {epoch}  loss {2.3 / (1 + epoch):.3f}" for epoch in range(12)),
    "epoch 12:  62%|██████▏   | 74/120 [00:03<00:01, 24.1it/s]",
)

Compare = Callable[..., bool]


def app(theme: str = DARK_THEME.name, *more: ev.Event) -> GradtuiApp:
    made = GradtuiApp(
        ScriptedSource([*coop_run(120), *more]),
        RecordingSink(),
        log=PrintedLog(*LOG),
        refresh_hz=0,
    )
    made.theme = theme
    return made


async def draw(pilot: Pilot[str]) -> None:
    assert isinstance(pilot.app, GradtuiApp)
    await pilot.pause()
    pilot.app.pump()
    await pilot.pause()


def then(*keys: str) -> Callable[[Pilot[str]], object]:
    async def before(pilot: Pilot[str]) -> None:
        await draw(pilot)
        await pilot.press(*keys)
        await draw(pilot)

    return before


@pytest.mark.parametrize("theme", [DARK_THEME.name, LIGHT_THEME.name])
@pytest.mark.parametrize("size", [(160, 50), (80, 24)], ids=["wide", "narrow"])
def test_the_dashboard(snap_compare: Compare, theme: str, size: tuple[int, int]) -> None:
    assert snap_compare(app(theme), terminal_size=size, run_before=draw)


def test_pending_toggles_and_the_events_below(snap_compare: Compare) -> None:
    keys = ("down", "space", "down", "down", "space", "v")
    assert snap_compare(app(), terminal_size=(120, 36), run_before=then(*keys))


def test_the_gradients_on_a_narrow_screen(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=(80, 24), run_before=then("down", "g"))


def test_why(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=(100, 30), run_before=then("down", "enter"))


@pytest.mark.parametrize("theme", [DARK_THEME.name, LIGHT_THEME.name])
def test_the_way_of_a_gradient(snap_compare: Compare, theme: str) -> None:
    made = app(theme, coop_chain(coop_model()))
    assert snap_compare(made, terminal_size=(80, 24), run_before=then("down", "enter"))


def test_help(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=(100, 36), run_before=then("question_mark"))


def test_the_norms_on_the_whole_screen(snap_compare: Compare) -> None:
    keys = ("down", "g", "tab", "w", "a", "down", "down", "left", "left")
    assert snap_compare(app(), terminal_size=(80, 24), run_before=then(*keys))


def test_memory_of_every_step_on_whole_screen(snap_compare: Compare) -> None:
    run = step_memory.events(120, {50: 300 * MIB, 90: 64 * MIB}, exact=True)
    made = GradtuiApp(ScriptedSource(run), RecordingSink(), log=PrintedLog(*LOG), refresh_hz=0)
    assert snap_compare(
        made, terminal_size=(120, 36), run_before=then("g", "shift+tab", "left_square_bracket", "left_square_bracket")
    )
