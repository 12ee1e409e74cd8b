"""The tab of the metrics and its dialog, driven by keys."""

from __future__ import annotations

from helpers.app_session import Session, session
from helpers.metric_events import metrics_logged
from textual.widgets import OptionList

from gradtui.tui.screens.metrics import MetricDialog
from gradtui.tui.screens.plots import PlotScreen


def view(run: Session) -> str:
    assert isinstance(run.app.screen, PlotScreen)
    return run.app.screen.plot_view.text


def listed(run: Session) -> list[str]:
    assert isinstance(run.app.screen, MetricDialog)
    return [" ".join(str(option.prompt).split()) for option in run.app.screen.query_one(OptionList).options]


async def opened(run: Session) -> None:
    await run.press("g")
    if not isinstance(run.app.screen, PlotScreen):
        await run.press("g")
    await run.press("shift+tab", "shift+tab")


async def test_slash_chooses_one_metric_or_all_that_match() -> None:
    async with session() as run:
        await run.put(metrics_logged())
        await opened(run)
        assert "val/loss" in view(run)
        await run.press("slash")
        assert len(listed(run)) == 4
        await run.press(*"val")
        assert listed(run) == ["all 2 of these", "val/loss 0.450 validation", "val/accuracy 0.650 validation"]
        await run.press("enter")
        assert view(run).startswith("── val/loss")
        assert "── val/accuracy" in view(run)
        await run.press("slash", *"val", "down", "down", "enter")
        assert view(run).startswith("── val/accuracy")
        await run.press("slash", "escape")
        assert view(run).startswith("── val/accuracy")


async def test_keys_show_the_next_quantity_and_epochs() -> None:
    async with session() as run:
        await run.put(metrics_logged())
        await opened(run)
        await run.press("greater_than_sign")
        assert view(run).startswith("── val/accuracy")
        await run.press("less_than_sign", "o", "left")
        assert "│ epoch" in view(run)
        await run.press("o")
        assert "step" in view(run)
        await run.press("plus", "plus")
        assert "steps" in str(run.app.screen.query_one("#plot").border_subtitle)


async def test_pins_metric_of_validation_to_header() -> None:
    async with session((120, 36)) as run:
        await run.put(metrics_logged())
        await opened(run)
        await run.press("a")
        assert run.app.run_state.metrics.pinned == "val/loss"
        assert [each.text for each in run.said] == ["val/loss is in the header."]
        await run.press("a")
        assert run.app.run_state.metrics.pinned == ""


async def test_without_metrics_the_keys_say_so() -> None:
    async with session() as run:
        await opened(run)
        assert "logged no metric" in view(run)
        await run.press("slash", "o", "greater_than_sign")
        assert isinstance(run.app.screen, PlotScreen)
