"""The plots on the whole screen, driven by keys over a scripted run."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from helpers import step_memory
from helpers.app_session import Session, session
from helpers.events import gradient_stats
from helpers.fakes import MIB, coop_run

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Pause, SetTrainable, Undo, Watch
from gradtui.protocol.measurements import BINS, GradientHistogram
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text.units import number_text, short_bytes
from gradtui.system.run_files import RunFiles
from gradtui.tui.plots.settings import VIEWS
from gradtui.tui.screens.detail_dialogs import MarkDialog
from gradtui.tui.screens.plots import PlotScreen
from gradtui.tui.screens.text_dialog import DialogLines


def plots(run: Session) -> PlotScreen:
    assert isinstance(run.app.screen, PlotScreen)
    return run.app.screen


def shown(run: Session) -> str:
    return plots(run).plot_view.text


def note(run: Session) -> str:
    return str(plots(run).plot_view.border_subtitle)


def looked(step: int, parameter: int = 0) -> list[ev.Event]:
    counts = tuple(100 if at == 30 else 0 for at in range(BINS))
    histogram = GradientHistogram(parameter, counts, 0, 0, 0, 0, 0, 50, 100, 100)
    figures = gradient_stats(parameter, 2e-3)
    return [
        ev.GradientFiguresMeasured(9.0, step, (figures,)),
        ev.GradientHistogramsMeasured(9.0, step, (histogram,)),
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_g_shows_gradients_plots_and_back(size: tuple[int, int]) -> None:
    async with session(size) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        assert shown(run).startswith("── loss")
        await run.press("g")
        assert run.app.screen is run.dashboard
        await run.press("g", "escape")
        assert run.app.screen is run.dashboard


async def test_a_click_on_the_panel_opens_them() -> None:
    async with session() as run:
        await run.pilot.click("#gradients")
        await run.pilot.pause()
        plots(run)


async def test_tab_goes_round_views() -> None:
    async with session() as run:
        await run.press("down", "g")
        seen = []
        for _ in VIEWS:
            seen.append(shown(run))
            await run.press("tab")
        assert "loss" in seen[0]
        assert "total" in seen[1]
        assert "waiting" in seen[2]
        assert "waiting" in seen[3]
        assert "Only ctx has a gradient" in seen[4]
        assert "steps/s" in seen[5]
        assert "logged no metric" in seen[6]
        assert "total" in seen[7]
        assert shown(run) == seen[0]
        await run.press(*["shift+tab"] * 4)
        assert "Only ctx has a gradient" in shown(run)


async def test_selected_row_is_watched_in_view() -> None:
    async with session() as run:
        await run.press("down", "g")
        await run.press("tab")
        assert not run.sink.submitted
        await run.press("tab")
        assert run.sink.submitted == [Watch(1, ("ctx",))]
        assert not run.app.run_state.pending, "it is no change of the run that a person waits for"
        await run.press("tab")
        assert len(run.sink.submitted) == 1
        await run.put(*looked(41))
        assert "100 elements" in shown(run)
        await run.press("shift+tab")
        assert "usual 0.0010" in shown(run)
        await run.press("escape")
        assert run.sink.submitted[-1] == Watch(2, ())


async def test_zoom_and_pan_and_the_newest() -> None:
    async with session(events=coop_run(120)) as run:
        await run.press("g")
        await run.press("plus", "plus")
        assert "steps 91–120 of 120" in note(run)
        await run.press("shift+left")
        assert "steps 83–112 of 120" in note(run)
        await run.put(*coop_run(150)[-400:])
        assert "steps 83–112 of 150" in note(run)
        await run.press("end")
        assert "of 150" in note(run)
        assert "–150" in note(run)
        await run.press("home")
        assert "steps 1–30 of 150" in note(run)
        await run.press("shift+right", "0")
        assert "steps" not in note(run)


async def test_scale_smoothing_and_order_are_told_on_frame() -> None:
    async with session() as run:
        await run.press("g")
        assert note(run) == "linear · EMA 0.6"
        assert "EMA" in shown(run)
        await run.press("l", "w", "w", "w")
        assert note(run) == "log"
        assert "EMA" not in shown(run)
        await run.press("tab", "w", "l")
        assert note(run) == "linear · EMA 0.6"
        await run.press(*["shift+tab"] * 5)
        assert "layers of one kind together" in note(run)
        await run.press("r", "r")
        assert "order of the calls" in note(run)


async def test_a_pinned_row_stays_while_others_are_chosen() -> None:
    async with session() as run:
        await run.press("down", "g", "tab", "a", "down")
        assert "ctx" in shown(run)
        assert "logit_scale" in shown(run)
        await run.press("up", "a", "down")
        assert "ctx" not in shown(run)


async def test_what_is_chosen_outlives_the_screen() -> None:
    async with session() as run:
        await run.press("g", "tab", "l", "left", "escape", "g")
        assert note(run) == "linear"
        assert "│ step 40" in shown(run)


async def test_run_is_held_and_helped_from_here_too() -> None:
    async with session() as run:
        await run.press("g", "p")
        assert run.sink.submitted == [Pause(1)]
        await run.press("question_mark")
        assert not isinstance(run.app.screen, PlotScreen)
        await run.press("escape")
        plots(run)


async def test_everything_still_works_when_the_run_has_ended() -> None:
    async with session() as run:
        await run.put(*looked(40), ev.RunEnded(9.5, 40, 0, None))
        await run.press("down", "g", "tab", "tab", "l", "tab", "plus", "tab", "tab", "tab", "tab", "tab")
        assert "loss" in shown(run)
        assert not run.sink.submitted
        await run.press("tab", "tab", "tab")
        assert "100 elements" in shown(run)


def written_files(notice: str) -> list[Path]:
    head, *names = notice.splitlines()
    directory = Path(head.removeprefix("Written to ").removesuffix(":"))
    return [directory / name for name in names]


async def test_e_writes_csv_and_svg(tmp_path: Path) -> None:
    async with session(write_file=RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write) as run:
        await run.press("down", "g", "tab", "plus", "e")
        await run.press("e")
        first, second = (written_files(each.text) for each in run.said)
        assert not set(first) & set(second), "nothing is written over"
        table, picture = first
        header, *rows = list(csv.reader(io.StringIO(table.read_text())))
        assert header == ["optimizer_step", "total_norm", "ctx"]
        total = dict(run.app.run_state.gradient_norm)
        assert {int(step): float(norm) for step, norm, _ in rows} == {s: n for s, n in total.items() if s >= 21}
        root = ET.fromstring(picture.read_text())
        assert root.tag.endswith("svg")
        words = "".join(root.itertext())
        assert "Histogram" in words


async def test_e_on_dashboard_writes_visible(tmp_path: Path) -> None:
    async with session((160, 50), write_file=RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write) as run:
        modules = len(run.app.run_state.tree.modules)
        await run.put(
            ev.StepMemoryProfiled(
                2.0, 41, (100, 300), 2, ((Phase.FORWARD, 0), (Phase.BACKWARD, 1)), 300, Phase.BACKWARD, -1, (),
                (None,) * modules, True,
            )
        )  # fmt: skip
        await run.press("e")
        names = [path.name.split("-", 4)[4] for path in written_files(run.said[0].text)]
        assert names == ["plot-norm-1.csv", "plot-memory-2.csv", "screen-3.svg"]


async def test_screen_is_written_without_plot(tmp_path: Path) -> None:
    async with session((80, 24), write_file=RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)}).write) as run:
        # There are no numbers of a gradient that nobody has looked at.
        await run.press("g", "tab", "tab", "tab", "e")
        for said in (each.text for each in run.said):
            assert said.count("\n") == 2
            assert "no numbers" in said


async def test_one_line_says_what_is_unwritable() -> None:
    def full(kind: str, suffix: str, fill: Callable[[BinaryIO], object]) -> str:
        raise OSError(28, "No space left on device")

    async with session() as run:
        await run.press("e")
        assert len(run.said) == 1
        assert "no place" in run.said[0].text
    async with session(write_file=full) as run:
        await run.press("g", "e")
        (trouble,) = (each.text for each in run.said)
        assert trouble.endswith("No space left on device")
        plots(run)


async def test_nobody_watches_any_more_when_screen_is_gone() -> None:
    async with session() as run:
        await run.press("down", "g", "tab", "tab")
        assert run.sink.submitted == [Watch(1, ("ctx",))]
    assert run.sink.submitted[-1] == Watch(2, ())


async def test_footer_offers_what_applies_to_run_now() -> None:
    async with session((160, 50)) as run:
        await run.press("g")
        assert "p pause" in plots(run).keys.text
        await run.put(ev.PauseChanged(2.0, 40, True))
        assert "p resume" in plots(run).keys.text
        assert "p pause" not in plots(run).keys.text
        await run.put(ev.PauseChanged(3.0, 40, False))
        assert "p pause" in plots(run).keys.text
        await run.put(ev.RunEnded(4.0, 40, 0, None))
        assert not {"p pause", "p resume", "n step"} & {text.strip() for text in plots(run).keys.text.split("  ")}


def memory_run() -> list[ev.Event]:
    return step_memory.events(60, {20: 300 * MIB, 40: 64 * MIB})


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 50)])
async def test_the_memory_of_every_step_has_a_view(size: tuple[int, int]) -> None:
    async with session(size, memory_run()) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        await run.press("shift+tab")
        peak = short_bytes((step_memory.totals(60).peak or 0) - step_memory.BEFORE)
        assert f"highest at phase ends {peak}" in shown(run)
        assert "MiB┤" in shown(run)
        more = (step_memory.totals(20, 300 * MIB).peak or 0) - step_memory.USUAL
        assert re.search(rf"▲ (memory spike )?\+{more // MIB}M", shown(run))
        assert "newest at step 40" in " ".join(shown(run).split())
        assert "step 60" in shown(run) + note(run)
        await run.press("l")
        assert "from zero" in note(run)
        await run.press("plus")
        assert "steps 31–60 of 60" in note(run)
        assert f"▲ +{more // MIB}M" not in shown(run)
        await run.press("tab")
        assert "steps 31–60" in note(run), "the views over steps share their window"


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_g_from_the_memory_panel_opens_its_plot(size: tuple[int, int]) -> None:
    async with session(size, memory_run()) as run:
        await run.press("m")
        if run.app.focused is not run.dashboard.memory:
            await run.press("m")
        await run.press("g")
        assert plots(run).table[0] == "memory"
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_step_memory_is_exported_by_allocator(tmp_path: Path) -> None:
    files = RunFiles("train.py", {"XDG_STATE_HOME": str(tmp_path)})
    async with session((120, 36), memory_run(), write_file=files.write) as run:
        await run.press("g", "shift+tab", "e")
        names = [path.name for path in tmp_path.rglob("*plot-memory*")]
        assert len(names) == 1
        rows = list(csv.DictReader(io.StringIO(next(tmp_path.rglob("*plot-memory*")).read_text())))
    assert [int(row["peak_bytes"]) for row in rows[:3]] == [step_memory.totals(step).peak for step in (1, 2, 3)]
    assert int(rows[19]["forward_bytes"]) == step_memory.totals(20, 300 * MIB).forward


def changed_run() -> list[ev.Event]:
    """`ctx` is frozen after step 20 and unfrozen by an undo after step 60."""
    run = coop_run(100)
    freeze = ev.CommandApplied(2.0, 20, SetTrainable(1, "ctx", False), "froze ctx: 1 tensor", (), ())
    undo = ev.CommandApplied(6.0, 60, Undo(2), "unfroze ctx: 1 tensor", (), (), undone=1)
    return [*run, freeze, undo]


async def test_a_cursor_reads_all_curves_at_a_step() -> None:
    async with session((120, 36), coop_run(100)) as run:
        await run.press("g", "tab", "left")
        total = dict(run.app.run_state.gradient_norm)
        assert f"│ step 100   ── total {number_text(total[100]).strip()}" in shown(run)
        await run.press("left")
        step = next(step for step in total if f"│ step {step} " in shown(run))
        assert 90 < step < 100
        assert f"total {number_text(total[step]).strip()}" in shown(run)
        await run.put(*coop_run(130)[-300:])
        assert f"│ step {step} " in shown(run), "it stays where it is"
        await run.press("tab", "shift+tab", "shift+tab")
        assert f"│ step {step} " in shown(run), "the views over steps share it"
        await run.press("end")
        assert "│ step" not in shown(run)


async def test_window_follows_cursor_until_newest() -> None:
    async with session((80, 24), coop_run(400)) as run:
        await run.press("g", "plus", "plus", "plus", "plus")
        before = note(run)
        await run.press("left", *["left"] * 60)
        assert note(run) != before
        await run.press("0", "left", "right")
        assert "│ step" not in shown(run)


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 36), (160, 50)])
async def test_enter_on_a_mark_says_what_it_was(size: tuple[int, int]) -> None:
    async with session(size, changed_run()) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        await run.press("left_square_bracket")
        assert "│ step 60" in shown(run)
        assert "► unfreeze ctx" in shown(run)
        await run.press("left_square_bracket")
        assert "■ freeze ctx" in shown(run)
        await run.press("right")
        assert "nearest, step 20:" in shown(run)
        await run.press("enter")
        dialog = run.app.screen
        assert isinstance(dialog, MarkDialog)
        told = dialog.query_one(DialogLines).text
        assert "froze ctx" in told
        assert "after step 20" in told
        await run.press("escape", "0", "enter")
        assert not isinstance(run.app.screen, MarkDialog), "without a cursor it explains the row"


async def test_spike_of_memory_is_mark_with_its_figures() -> None:
    async with session((120, 36), memory_run()) as run:
        await run.press("g", "shift+tab", "left_square_bracket", "left_square_bracket", "enter")
        assert isinstance(run.app.screen, MarkDialog)
        told = " ".join(run.app.screen.query_one(DialogLines).text.split())
        assert "at step 20" in told
        assert "memory spike in forward: ≥" in told
        await run.press("escape", "m", "0")
        assert "backward" in shown(run)
        assert "totals at the ends" in note(run)


async def test_brackets_without_marks_say_so() -> None:
    async with session(events=[*coop_run(60), *looked(60)]) as run:
        await run.press("down", "g", "right_square_bracket")
        assert [each.text.split()[0] for each in run.said] == ["Nothing"]
        for view in VIEWS:
            await run.press("left")
            if view.id not in ("depth", "metrics"):
                assert shown(run).startswith("│ "), view.id
            await run.press("tab")


async def test_a_click_in_the_plot_reads_there() -> None:
    async with session((120, 36), coop_run(100)) as run:
        await run.press("g")
        await run.pilot.click("#plot", offset=(70, 12))
        await run.pilot.pause()
        assert "│ step 5" in shown(run)


@pytest.mark.parametrize(("width", "keys"), [(40, 4), (80, 8), (120, 10)])
async def test_footer_has_what_plot_needs_at_every_size(width: int, keys: int) -> None:
    async with session((width, 24)) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        listed = [
            "tab view",
            "←→ read",
            "+- zoom",
            "esc back",
            "[] mark",
            "l scale",
            "w smooth",
            "? help",
            "e export",
            "0 all",
        ]
        for words in listed[:keys]:
            assert words in plots(run).keys.text
        assert all(len(line) <= width for line in plots(run).keys.text.splitlines())


async def test_names_of_any_characters_are_clean_in_plots() -> None:
    name = "a\x1b[31mé界" * 9
    freeze = ev.CommandApplied(2.0, 20, SetTrainable(1, name, False), f"froze {name}", (), ())
    async with session((80, 24), [*coop_run(40), freeze]) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        await run.press("left_square_bracket")
        assert "\x1b" not in shown(run)
        await run.press("enter")
        assert isinstance(run.app.screen, MarkDialog)
        assert "\x1b" not in run.app.screen.query_one(DialogLines).text


async def test_small_screen_has_chart_and_tab() -> None:
    async with session((40, 12), memory_run()) as run:
        await run.press("g")
        if not isinstance(run.app.screen, PlotScreen):
            await run.press("g")
        await run.press("shift+tab", "left_square_bracket")
        assert "Memory[/bold $primary] [$foreground-muted]8 of 8" in str(plots(run).plot_view.border_title)
        lines = shown(run).splitlines()
        charted = [line for line in lines if "┤" in line or "│" in line[1:]]
        assert len(charted) >= 3
        assert any(line.lstrip().startswith("└") for line in lines), "the steps of the axis"
        assert "▲ memory spike" in lines[-1]
