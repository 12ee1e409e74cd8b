from __future__ import annotations

import asyncio

import pytest
from app_session import Session, own_drawing, session
from fakes import (
    Node,
    PrintedLog,
    RecordingSink,
    ScriptedSource,
    coop_model,
    coop_run,
    coop_states,
    found,
    row_of,
    started,
    training_step,
)
from textual.geometry import Region
from textual.widgets import OptionList

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Pause,
    Resume,
    RunSteps,
    SaveAllocatorSnapshot,
    SetTrainable,
    StopTraining,
    TraceStep,
)
from gradtui.protocol.vocabulary import Holding, Phase
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.app.app import GradtuiApp
from gradtui.tui.app.redraw_scheduler import RedrawScheduler
from gradtui.tui.rendering.lines import Line
from gradtui.tui.rendering.proportions import output_columns
from gradtui.tui.screens.dashboard import INTERVALS
from gradtui.tui.screens.detail import DetailDialog
from gradtui.tui.screens.help import help_lines
from gradtui.tui.screens.leave import LeaveDialog
from gradtui.tui.screens.step import StepDialog
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog
from gradtui.tui.tree.pending_marks import FREEZE, UNFREEZE

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")
SIZES = [(80, 24), (100, 30), (160, 50)]
ERROR = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: bad batch'


@pytest.mark.parametrize("size", SIZES)
async def test_the_run_is_on_the_screen(size: tuple[int, int]) -> None:
    async with session(size) as run:
        shown = run.dashboard.header.text + run.dashboard.tree_view.text
        for part in ("coop_like.py", "40", "24.1/s", "CoOp", "ctx", "text_encoder"):
            assert part in shown
        assert "forward" in run.dashboard.memory.text


async def test_events_that_arrive_later_are_drawn() -> None:
    async with session() as run:
        states, _ = coop_states(MODEL)
        await run.put(*training_step(MODEL, states, 41))
        assert "step 41" in run.dashboard.header.text


async def test_who_asks_for_the_state_gets_it_with_all_events_that_have_arrived() -> None:
    async with session() as run:
        states, _ = coop_states(MODEL)
        run.source.put(*training_step(MODEL, states, 41))
        assert run.app.look(lambda state: state.step) == 41


async def test_the_first_states_of_a_model_are_drawn_as_they_come() -> None:
    now = 0.0
    redraws = RedrawScheduler(0, 1.0, wall=lambda: now, cpu=lambda: 0.0)
    for part in INTERVALS:
        redraws.add(part, 60.0)
    async with session() as run:
        run.app._redraws = redraws
        for _ in INTERVALS:
            now += 1
            run.app._tick()
        run.source.put(MODEL)
        now += 1
        run.app._tick()
        assert "TFC" not in run.dashboard.tree_view.text, "of another model nothing is known yet"
        run.source.put(ev.ParametersClassified(9.0, 41, *coop_states(MODEL)))
        now += 1
        run.app._tick()
        assert "TFC" in run.dashboard.tree_view.text


async def test_the_first_figures_of_memory_are_drawn_as_they_come() -> None:
    run_of_one = coop_run(1)
    first = next(index for index, event in enumerate(run_of_one) if isinstance(event, ev.MemoryMeasured))
    now = 0.0
    redraws = RedrawScheduler(0, 1.0, wall=lambda: now, cpu=lambda: 0.0)
    for part in INTERVALS:
        redraws.add(part, 60.0)
    async with session(events=run_of_one[:first]) as run:
        run.app._redraws = redraws
        for _ in INTERVALS:
            now += 1
            run.app._tick()
        await run.pilot.pause()
        assert "Waiting for the first phase" in run.dashboard.memory.text
        run.source.put(*run_of_one[first:])
        now += 1
        run.app._tick()
        await run.pilot.pause()
        assert "Waiting for the first phase" not in run.dashboard.memory.text


async def test_nothing_is_repainted_when_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        await run.pump()
        repainted: list[object] = []
        board = run.dashboard
        for view in (board.header, board.tree_view, board.memory, board.gradients, board.output):
            monkeypatch.setattr(view, "refresh", lambda *regions, **_: repainted.append(regions))
        await run.pump()
        monkeypatch.undo()
        assert repainted == []


async def test_only_rows_that_changed_are_repainted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        rows: list[int] = []

        def repainted(*regions: Region, **_: object) -> None:
            rows.extend(y for region in regions for y in region.line_range)

        monkeypatch.setattr(run.dashboard.tree_view, "refresh", repainted)
        states, _ = coop_states(MODEL)
        await run.put(*training_step(MODEL, states, 41))
        tree = run.dashboard.tree_view
        monkeypatch.undo()
        assert sorted(rows) == sorted(tree.rows.position(row_of(MODEL, path)) for path in ("", "ctx"))  # type: ignore[type-var]


# Freezing


async def test_space_freezes_a_parameter_shows_it_pending_and_then_applied() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("space")
        assert run.sink.submitted == [SetTrainable(1, "ctx", False)]
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(FREEZE + "T")
        states, trainable = coop_states(MODEL)
        frozen = states.replace("T", "C"), trainable.replace("1", "0")
        applied = ev.CommandApplied(2.0, 41, SetTrainable(1, "ctx", False), "froze ctx", (CTX,))
        await run.put(applied, ev.ParametersClassified(2.0, 41, *frozen))
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(" C")


async def test_space_on_a_module_asks_for_its_subtree() -> None:
    async with session() as run:
        await run.go_to("text_encoder")
        await run.press("space")
        assert run.sink.submitted == [SetTrainable(1, "text_encoder", True)]
        marked = [line for line in run.dashboard.tree_view.text.splitlines() if line.startswith(UNFREEZE)]
        assert len(marked) > 3


async def test_a_refusal_gives_the_row_back_and_says_why() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("space")
        await run.put(ev.CommandRejected(2.0, 41, SetTrainable(1, "ctx", False), "it is the last trainable parameter"))
        assert FREEZE not in run.dashboard.tree_view.text
        assert any(
            "cannot freeze ctx: it is the last trainable parameter" in note.message for note in run.app._notifications
        )
        await run.press("v")
        assert "last trainable parameter" in " ".join(run.dashboard.events.text.split())


async def test_space_after_the_end_sends_nothing() -> None:
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        await run.press("space")
        assert run.sink.submitted == []


# A step taken apart


async def test_t_asks_for_a_step_and_shows_it_when_it_is_there() -> None:
    async with session() as run:
        await run.press("t")
        assert run.sink.submitted == [TraceStep(1)]
        dialog = run.app.screen
        assert isinstance(dialog, StepDialog)
        shown = dialog.query_one(DialogLines)
        assert "Waiting" in shown.text
        modules = len(run.app.run_state.tree.modules)
        await run.put(
            ev.CommandApplied(2.0, 40, TraceStep(1), "profile the memory of the next step", ()),
            ev.StepMemoryProfiled(
                2.0, 41, (100, 300, 200), 3, ((Phase.FORWARD, 0), (Phase.BACKWARD, 1)), 300, 1, Phase.BACKWARD, -1,
                (Holding("other", -1, 300, 0),), (None,) * modules, True,
            ),
        )  # fmt: skip
        assert "Step 41" in shown.text
        assert "Waiting" not in shown.text
        await run.press("escape", "t")
        again = run.app.screen.query_one(DialogLines)
        assert "Waiting" in again.text, "the step that was asked for is not the one that is shown"
        assert "Step 41" in again.text
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_a_step_that_cannot_be_taken_apart_closes_the_dialog_and_says_why() -> None:
    async with session() as run:
        await run.press("t")
        await run.put(ev.CommandRejected(2.0, 41, TraceStep(1), "the models are on cuda"))
        assert run.app.screen is run.dashboard
        assert any(
            "cannot profile the memory of a step: the models are on cuda" in n.message for n in run.app._notifications
        )


# Memory that runs out


async def test_s_asks_for_a_snapshot_and_says_where_it_is() -> None:
    async with session() as run:
        await run.press("s")
        assert run.sink.submitted == [SaveAllocatorSnapshot(1)]
        said = "wrote a snapshot of the allocator to /state/run-allocator-1.pickle"
        await run.put(ev.CommandApplied(2.0, 41, SaveAllocatorSnapshot(1), said, ()))
        assert any(said in note.message for note in run.app._notifications)
        await run.press("v")
        assert said in " ".join(run.dashboard.events.text.split())


async def test_s_in_the_question_before_leaving_still_stops() -> None:
    async with session() as run:
        await run.press("q", "s")
        assert run.sink.submitted == [StopTraining(1)]


async def test_a_failed_allocation_is_told_at_once_and_stays_in_the_events() -> None:
    box = ev.OutOfMemory(
        2.0, 41, 1, "cuda:0", "", 1 << 30, Phase.FORWARD, "text_encoder.blocks.3", (("activations", 3 << 30),), 3 << 30, (),
        True, "/state/run-out-of-memory-1.txt", None,
    )  # fmt: skip
    said = (
        "CUDA out of memory in text_encoder.blocks.3 (forward): 3.0 GiB activations; 1.0 GiB more were requested; "
        "written to /state/run-out-of-memory-1.txt"
    )
    async with session() as run:
        await run.put(box, ev.RunEnded(2.1, 41, 1, "torch.OutOfMemoryError: CUDA out of memory.\n"))
        told = "CUDA out of memory in text_encoder.blocks.3 (forward); v lists what used it"
        assert [note.message for note in run.app._notifications] == [told]
        await run.press("v")
        assert said in " ".join(run.dashboard.events.text.split())


# Pausing and stepping


async def test_pause_go_on_and_single_steps() -> None:
    async with session() as run:
        await run.press("p")
        assert "pausing" in run.dashboard.header.text
        await run.put(ev.CommandApplied(2.0, 40, Pause(1), "paused", ()), ev.PauseChanged(2.0, 40, True))
        assert "paused" in run.dashboard.header.text
        await run.press("n", "p")
        assert run.sink.submitted == [Pause(1), RunSteps(2, 1), Pause(3)]
        await run.put(*(ev.CommandApplied(2.0, 40, done, "done", ()) for done in (RunSteps(2), Pause(3))))
        await run.press("p")
        assert run.sink.submitted[-1] == Resume(4)


# Leaving


@pytest.mark.parametrize(("key", "result", "sent"), [("s", "stop", [StopTraining(1)]), ("l", "leave", [])])
async def test_leaving_asks_and_says_how(key: str, result: str, sent: list[object]) -> None:
    async with session() as run:
        await run.press("q")
        assert isinstance(run.app.screen, LeaveDialog)
        await run.press(key)
        assert run.app.return_value == result
        assert run.sink.submitted == sent


async def test_enter_on_the_first_answer_lets_training_run_on() -> None:
    async with session() as run:
        await run.press("q", "enter")
        assert run.app.return_value == "leave"
        assert run.sink.submitted == []


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_staying(key: str) -> None:
    async with session() as run:
        await run.press("q", key)
        assert run.app.screen is run.dashboard
        assert run.app.return_value is None


@pytest.mark.parametrize("before", ["paused", "pausing"])
async def test_leaving_a_held_run_lets_it_go_on(before: str) -> None:
    async with session() as run:
        if before == "paused":
            await run.put(ev.PauseChanged(2.0, 40, True))
        else:
            await run.press("p")
        await run.press("q", "l")
        assert isinstance(run.sink.submitted[-1], Resume)


async def test_when_the_run_has_ended_leaving_asks_nothing() -> None:
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        await run.press("q")
        assert run.app.return_value == "ended"


async def test_the_run_may_end_while_the_question_stands() -> None:
    async with session() as run:
        await run.press("q")
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("s")
        assert run.app.return_value == "ended"
        assert run.sink.submitted == []


async def test_ctrl_c_interrupts_the_script_and_not_the_screen() -> None:
    async with session() as run:
        await run.press("ctrl+c")
        assert run.interrupts == [True]
        assert run.app.return_value is None
        await run.press("slash", "ctrl+c", "escape", "question_mark", "ctrl+c")
        assert len(run.interrupts) == 3


# Dialogs


async def test_enter_explains_the_row_and_keeps_up_with_the_run() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("enter")
        assert isinstance(run.app.screen, DetailDialog)
        shown = run.app.screen.query_one("#dialog-lines")
        assert "T trained" in shown.text  # type: ignore[attr-defined]
        run.source.put(ev.CommandApplied(2.0, 41, SetTrainable(9, "ctx", False), "froze ctx", (CTX,)))
        await run.pump()
        run.app.screen.update()
        await run.pilot.pause()
        assert "froze ctx" in shown.text  # type: ignore[attr-defined]
        await run.press("escape")
        assert run.app.screen is run.dashboard


async def test_help_can_be_read_to_its_end() -> None:
    async with session((80, 24)) as run:
        await run.press("question_mark")
        assert isinstance(run.app.screen, TextDialog)
        shown = run.app.screen.query_one("#dialog-lines")
        assert "Training" in shown.text  # type: ignore[attr-defined]
        await run.press("end")
        assert "budget" in shown.text  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 100])
def test_the_help_names_what_only_the_palette_has_and_after_the_keys(width: int) -> None:
    told = ["".join(text for text, _ in line) for line in help_lines(width)]
    nameless = [action.title for action in ACTIONS if not action.keys]
    indices = [
        next(at for at, line in enumerate(told) if line.startswith(f"  ctrl+p       {title}: ")) for title in nameless
    ]
    assert nameless
    training = [index for index in indices if index < told.index("Model")]
    assert min(training) > next(at for at, line in enumerate(told) if line.startswith("  q, ctrl+q"))


async def test_a_dialog_that_does_not_fit_says_how_to_read_on() -> None:
    async with session((80, 24)) as run:
        await run.press("question_mark")
        box = run.app.screen.query_one("#dialog")
        assert str(box.border_subtitle) == "↑↓ scroll · esc closes"
    async with session((160, 50)) as run:
        await run.press("enter")
        assert str(run.app.screen.query_one("#dialog").border_subtitle) == "esc closes"


@pytest.mark.parametrize("size", SIZES)
async def test_a_dialog_stays_where_it_is_as_its_text_grows(size: tuple[int, int]) -> None:
    text: list[Line] = [(("one line", "text"),)]
    async with session(size) as run:
        await run.app.push_screen(TextDialog("Title", lambda _: text))
        await run.pilot.pause()
        box = run.app.screen.query_one("#dialog")
        before = box.region
        text *= 100
        run.app.screen.update()  # type: ignore[attr-defined]
        await run.pilot.pause()
        assert box.region.height > before.height
        assert box.region.offset == before.offset
        assert 0 < box.region.y < box.region.bottom < size[1], "header and keys stay in sight"


async def test_the_palette_finds_every_action() -> None:
    async with session() as run:
        palette = await run.palette()
        titles = {title.split("  ")[0] for title in palette}
        assert titles == {action.title for action in ACTIONS if action.in_palette}
        assert {"Freeze or unfreeze", "Fold all", "Next problem", "Light or dark"} <= titles
        before = len(run.dashboard.tree_view.rows)
        await palette["Fold all  -"]()
        assert len(run.dashboard.tree_view.rows) < before


@pytest.mark.parametrize("typed", ["light or dark", "fold all", "pause or resume"])
async def test_a_command_of_the_palette_does_what_its_key_does(typed: str) -> None:
    key = {"light or dark": "ctrl+t", "fold all": "minus", "pause or resume": "p"}[typed]

    def seen(run: Session) -> tuple[object, ...]:
        return run.app.theme, len(run.dashboard.tree_view.rows), list(run.sink.submitted)

    after = []
    for keys in ((key,), ("ctrl+p", *(letter if letter != " " else "space" for letter in typed), "enter")):
        async with session() as run:
            before = seen(run)
            await run.press(*keys)
            for _ in range(100):
                if seen(run) != before:
                    break
                await run.pilot.pause()
            after.append(seen(run))
            assert run.app.screen is run.dashboard
            assert seen(run) != before
    assert after[0] == after[1]


async def test_the_theme_changes_and_lines_with_it() -> None:
    async with session() as run:
        before = run.dashboard.tree_view.render_line(0)
        await run.press("ctrl+t")
        assert not run.app.current_theme.dark
        assert run.dashboard.tree_view.render_line(0) != before
        for over in ("g", "question_mark"):
            await run.press(over, "ctrl+t")
            assert run.app.screen is not run.dashboard
        assert not run.app.current_theme.dark
        await run.press("ctrl+t")
        assert run.app.current_theme.dark


# The tree


async def test_moving_and_folding() -> None:
    async with session() as run:
        await run.press("down", "j")
        assert run.row == "logit_scale"
        await run.press("down")
        assert run.row == "text_encoder"
        shown = len(run.dashboard.tree_view.rows)
        await run.press("left")
        assert len(run.dashboard.tree_view.rows) < shown
        await run.press("left")
        assert run.row == ""
        await run.press("down", "down", "down", "right", "right")
        assert run.row == "text_encoder.positional_embedding"
        assert len(run.dashboard.tree_view.rows) == shown
        await run.press("z")
        assert run.row == "text_encoder"
        await run.press("plus", "end")
        assert run.row == "image_encoder.fc.bias"
        await run.press("minus")
        assert run.row == "image_encoder"
        await run.press("home")
        assert run.row == ""


async def test_the_cursor_is_always_in_sight() -> None:
    async with session((80, 24)) as run:
        tree = run.dashboard.tree_view
        await run.press("plus", *["pagedown"] * 4, *["up"] * 3)
        height = tree.content_size.height
        assert tree.top <= tree.cursor < tree.top + height
        assert tree.rows.path(tree.rows.rows[tree.cursor]).rpartition(".")[2][:8] in tree.text


async def test_filtering_as_one_types_and_back() -> None:
    async with session() as run:
        before = list(run.dashboard.tree_view.rows.rows)
        await run.press("slash", *"conv1")
        tree = run.dashboard.tree_view
        assert [tree.rows.path(row) for row in tree.rows.rows] == [
            "", "image_encoder", "image_encoder.conv1", "image_encoder.conv1.weight", "image_encoder.conv1.bias",
        ]  # fmt: skip
        assert run.row == "image_encoder.conv1"
        await run.press("down", "enter", "space")
        assert run.sink.submitted == [SetTrainable(1, "image_encoder.conv1.weight", True)]
        assert run.dashboard.pane.filter_input.display
        await run.press("escape")
        assert tree.rows.rows == before
        assert not run.dashboard.pane.filter_input.display
        assert tree.has_focus


async def test_the_footer_tells_what_the_keys_do_where_they_go() -> None:
    async with session() as run:
        keys = run.dashboard.keys
        usual = keys.text
        assert "space freeze" in usual
        await run.press("slash", *"conv")
        assert "space" not in keys.text, "it is a letter of the filter now"
        await run.pilot.click(keys, offset=(keys.text.index("keep"), 0))
        await run.pilot.pause()
        assert (run.dashboard.tree_view.has_focus, keys.text) == (True, usual)
        assert run.dashboard.pane.filter_input.display
        await run.press("m")
        assert keys.text.startswith(" ↑↓ phase  esc tree  space freeze")
        before = run.dashboard.memory.text
        await run.pilot.click(keys, offset=(1, 0))
        await run.pilot.pause()
        assert run.dashboard.memory.text != before
        await run.press("escape")
        assert run.dashboard.tree_view.rows.filter == "conv", "esc in a panel leaves the filter alone"
        await run.press("escape")
        assert run.dashboard.tree_view.rows.filter == ""


async def test_a_filter_without_a_match_says_so() -> None:
    async with session() as run:
        await run.press("slash", *"xyz")
        assert "No row matches" in run.dashboard.tree_view.text
        await run.press("enter", "space", "enter")
        assert run.sink.submitted == []


async def test_the_next_problem_is_found_wherever_it_hides() -> None:
    states, trainable = coop_states(MODEL)
    last = row_of(MODEL, "text_encoder.blocks.7.mlp.2.bias")
    letters = list(states)
    letters[~last] = "U"
    async with session(events=[*coop_run(5), ev.ParametersClassified(5.0, 5, "".join(letters), trainable)]) as run:
        assert "1 needs a look" in str(run.dashboard.pane.border_subtitle)
        await run.press("minus", "slash", *"conv", "enter", "exclamation_mark")
        assert run.row == "text_encoder.blocks.7.mlp.2.bias"
        await run.press("right_square_bracket")
        assert run.row == "text_encoder.blocks.7.mlp.2.bias"


async def test_without_a_problem_the_cursor_stays() -> None:
    async with session() as run:
        await run.press("down", "exclamation_mark")
        assert run.row == "ctx"


async def test_the_cursor_and_folds_survive_a_new_structure() -> None:
    async with session() as run:
        await run.go_to("image_encoder")
        await run.press("left")
        await run.put(coop_model(blocks=9))
        assert run.row == "image_encoder"
        assert "conv1" not in run.dashboard.tree_view.text


async def test_a_structure_that_is_gone_leaves_no_dangling_cursor() -> None:
    async with session() as run:
        await run.press("plus", "end")
        await run.put(found(Node("Other", "Other", (("w", (2,)),))))
        await run.press("enter", "escape", "space", "down", "down")
        assert run.row in ("", "w")


async def test_the_mouse_selects_folds_toggles_and_explains() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        index = tree.rows.position(row_of(MODEL, "text_encoder"))
        assert index is not None
        await run.pilot.click(tree, offset=(1, index))
        assert run.row == "text_encoder"
        assert run.sink.submitted == []
        await run.pilot.click(tree, offset=(1, index))
        await run.pilot.pause()
        assert run.sink.submitted == [SetTrainable(1, "text_encoder", True)]
        shown = len(tree.rows)
        assert tree._cells is not None
        await run.pilot.click(tree, offset=(tree._cells.marker_column(row_of(MODEL, "text_encoder")), index))
        assert len(tree.rows) < shown
        await run.pilot.click(tree, offset=(20, 1), times=2)
        await run.pilot.pause()
        assert isinstance(run.app.screen, DetailDialog)


async def test_the_wheel_scrolls_without_moving_the_cursor() -> None:
    async with session((80, 24)) as run:
        await run.press("plus")
        tree = run.dashboard.tree_view
        cursor, first = tree.cursor, tree.text.splitlines()[0]
        tree.scroll_lines(3)
        await run.pilot.pause()
        assert tree.text.splitlines()[0] != first
        assert tree.cursor == cursor


async def test_the_keys_below_can_be_clicked() -> None:
    async with session() as run:
        text = run.app.query_one("#keys").text  # type: ignore[attr-defined]
        await run.pilot.click("#keys", offset=(text.index("pause"), 0))
        await run.pilot.pause()
        assert run.sink.submitted == [Pause(1)]


# Panels


async def test_a_narrow_screen_shows_one_panel_at_a_time_by_tab() -> None:
    async with session((80, 24)) as run:
        board = run.dashboard
        panels = (board.memory, board.gradients, board.output, board.events)
        seen = []
        for _ in range(5):
            assert board.tree_view.has_focus
            seen.append([panel.id for panel in panels if panel.display])
            await run.press("tab")
        assert seen == [["memory"], ["gradients"], ["output"], ["events"], ["memory"]]


async def test_a_wide_screen_shows_both_and_changes_what_is_below() -> None:
    async with session((120, 36)) as run:
        board = run.dashboard
        assert board.memory.display
        assert board.gradients.display
        assert (board.output.display, board.events.display) == (True, False)
        await run.press("tab")
        assert (board.output.display, board.events.display) == (False, True)
        assert "started demos/coop_like.py" in board.events.text


async def test_resizing_changes_the_layout_and_keeps_everything_alive() -> None:
    async with session((120, 36)) as run:
        for size in ((80, 24), (40, 10), (20, 5), (200, 60), (99, 30), (100, 30), (100, 29), (160, 24)):
            await run.pilot.resize_terminal(*size)
            await run.pump()
            assert run.dashboard.has_class("-wide" if size[0] >= 100 and size[1] >= 30 else "-narrow")
        assert "CoOp" in run.dashboard.tree_view.text


async def test_hidden_panels_do_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session((80, 24)) as run:
        for panel in (run.dashboard.gradients, run.dashboard.output, run.dashboard.events):
            monkeypatch.setattr(panel, "lines_for", lambda *_: pytest.fail("drawn while hidden"))
        states, _ = coop_states(MODEL)
        await run.put(*training_step(MODEL, states, 41))
        assert {"gradients", "output", "events"}.isdisjoint(run.dashboard.visible_parts())


async def test_the_question_whether_to_leave_changes_as_the_run_ends() -> None:
    async with session() as run:
        await run.press("q")
        assert isinstance(run.app.screen, LeaveDialog)
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        assert isinstance(run.app.screen, LeaveDialog)
        options = run.app.screen.query_one("#answers", OptionList)
        assert [option.id for option in options.options] == ["leave", "stay"]
        assert "ended" in str(run.app.screen.query_one("#question").border_title)
        await run.press("enter")
        assert run.app.return_value == "ended"
        assert run.sink.submitted == []


async def test_who_was_about_to_stay_stays_as_the_run_ends() -> None:
    async with session() as run:
        await run.press("q", "down", "down")
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("enter")
        assert run.app.screen is run.dashboard
        assert run.app.is_running


async def test_a_filter_stays_in_force_when_models_are_listed_anew() -> None:
    async with session() as run:
        tree = run.dashboard.tree_view
        tree.set_filter("ctx")
        before = [tree.rows.path(row) for row in tree.rows.rows]
        await run.put(coop_model())
        assert [tree.rows.path(row) for row in tree.rows.rows] == before
        assert len(before) < len(MODEL.modules)


async def test_the_gradient_panel_follows_the_cursor() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.pump()
        assert "ctx" in run.dashboard.gradients.text.splitlines()[0]
        await run.go_to("image_encoder.fc")
        await run.pump()
        assert "image_encoder.fc –" in run.dashboard.gradients.text.splitlines()[0]


async def test_the_total_beside_a_row_is_of_the_same_step() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.pump()
        both = run.dashboard.gradients.text.splitlines()[0]
        await run.put(ev.GradientsMeasured(9.0, 41, 1e-9, None, None))
        assert run.dashboard.gradients.text.splitlines()[0] == both
        await run.go_to("")
        await run.pump()
        # The norms in the tree are of the step before that.
        assert "step 40" in run.dashboard.gradients.text.splitlines()[0]
        rows = tuple(1e-9 for _ in run.app.run_state.tree.parameters)
        await run.put(ev.GradientsMeasured(9.1, 42, 2e-9, None, rows))
        assert "2.00e-9" in run.dashboard.gradients.text.splitlines()[0]


@pytest.mark.parametrize("size", [(80, 24), (81, 24), (160, 24), (99, 30), (100, 30), (160, 50)])
async def test_a_progress_bar_of_the_width_that_is_told_fits_in_one_line(size: tuple[int, int]) -> None:
    bar = "#" * output_columns(*size)
    async with session(size, log=PrintedLog(bar)) as run:
        await run.press("o")
        assert run.dashboard.output.text.split() == [bar]


async def test_output_follows_its_end_until_one_scrolls_away() -> None:
    log = PrintedLog(*(f"line {number}" for number in range(50)))
    async with session(log=log) as run:
        assert "line 49" in run.dashboard.output.text
        await run.press("shift+tab", "shift+tab", "pageup")
        held = run.dashboard.output.text
        log.add("line 50")
        await run.pump()
        assert run.dashboard.output.text == held
        await run.press("end")
        await run.pump()
        assert "line 50" in run.dashboard.output.text
        await run.press("shift+tab")
        assert run.dashboard.tree_view.has_focus


async def test_a_phase_is_chosen_by_the_keys_and_by_a_click() -> None:
    async with session() as run:
        memory = run.dashboard.memory
        assert "end of forward" in memory.text
        await run.press("m", "down")
        assert memory.has_focus
        assert "end of backward" in memory.text
        assert run.row == "", "the tree's cursor stays"
        row = next(y for y, line in enumerate(memory.text.splitlines()) if "load" in line)
        await run.pilot.click(memory, offset=(20, row + 1))
        await run.pilot.pause()
        assert "end of load" in memory.text
        await run.press("escape", "down")
        assert run.row == "ctx"
        assert "end of load" in memory.text, "the choice stays"


async def test_the_keys_move_through_the_panels_that_take_them() -> None:
    async with session() as run:
        board = run.dashboard
        stops = []
        for _ in range(4):
            stops.append(board.focused)
            await run.press("shift+tab")
        assert stops == [board.tree_view, board.memory, board.output, board.tree_view]
        await run.press("m")
        assert board.tree_view.has_focus, "m gives the keys back too"


async def test_what_the_script_prints_cannot_command_the_terminal() -> None:
    async with session(log=PrintedLog("a\x1b[2Jb")) as run:
        assert "\x1b" not in run.dashboard.output.text


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_script_that_fails_shows_its_traceback(size: tuple[int, int]) -> None:
    async with session(size) as run:
        await run.press("v")
        await run.put(ev.RunEnded(9.0, 40, 1, ERROR))
        await run.pump()
        assert run.dashboard.output.display
        assert "ValueError: bad batch" in run.dashboard.output.text
        assert "exit code 1" in run.dashboard.output.text
        assert "failed" in run.dashboard.header.text


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_empty_panels_say_what_will_fill_them(size: tuple[int, int]) -> None:
    async with session(size, events=[started()], log=PrintedLog()) as run:
        texts = [run.dashboard.tree_view.text]
        for key in ("m", "g", "o", "v"):
            await run.press(key)
            panel = {"m": run.dashboard.memory, "g": run.dashboard.gradients, "o": run.dashboard.output}.get(key)
            if panel is not None:
                texts.append(panel.text)
        assert all("Waiting" in text for text in texts)


async def test_a_script_that_never_trains_is_told_so() -> None:
    async with session(events=[started(), ev.RunEnded(1.0, 0, 0, None)], log=PrintedLog("hello")) as run:
        assert "without training" in " ".join(run.dashboard.tree_view.text.split())
        assert "never trained" in " ".join(run.dashboard.gradients.text.split())
        assert "hello" in run.dashboard.output.text


# When something of ours breaks


@pytest.mark.parametrize("part", ["tree", "memory", "gradients", "output"])
async def test_a_panel_that_raises_shows_the_error_and_costs_nothing_else(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session() as run:
        board = run.dashboard
        view = {"tree": board.tree_view, "memory": board.memory, "gradients": board.gradients, "output": board.output}[
            part
        ]

        def broken(*_: int) -> list[object]:
            raise ZeroDivisionError("on purpose")

        monkeypatch.setattr(view, "lines_for", broken)
        await run.pump()
        assert "this panel failed: ZeroDivisionError: on purpose" in view.text
        monkeypatch.undo()
        await run.pump()
        assert "failed" not in view.text


async def test_a_part_that_raises_before_it_draws_shows_the_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as run:
        monkeypatch.setattr(run.dashboard.tree_view.totals, "update", lambda _: 1 / 0)
        await run.pump()
        assert "ZeroDivisionError" in run.dashboard.tree_view.text


async def test_an_event_that_cannot_be_understood_is_noted_and_the_rest_goes_on() -> None:
    states, _ = coop_states(MODEL)
    broken = ev.ParametersClassified(1.0, 40, None, "")  # type: ignore[arg-type]
    async with session() as run:
        await run.put(broken, *training_step(MODEL, states, 41))
        assert "ParametersClassified" in run.app.run_state.problems["screen"].error
        assert "step 41" in run.dashboard.header.text


# The clock


async def test_with_a_clock_it_drains_by_itself_and_stops_with_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    app = GradtuiApp(ScriptedSource(coop_run(5)), RecordingSink(), refresh_hz=200, ui_budget=0, pictures=own_drawing())
    shown = asyncio.Event()
    draw = app.dashboard.draw

    def draw_and_look(part: str) -> None:
        draw(part)
        if app.run_state.step == 5 and "CoOp" in app.dashboard.tree_view.text:
            shown.set()

    monkeypatch.setattr(app.dashboard, "draw", draw_and_look)
    async with app.run_test():
        await asyncio.wait_for(shown.wait(), 20)
        app.exit("leave")
    assert app.return_value == "leave"


@pytest.mark.parametrize("blocks", [2, 12])
async def test_a_key_pressed_right_after_another_model_was_found_does_no_harm(blocks: int) -> None:
    async with session() as run:
        model = coop_model(blocks=blocks)
        states, trainable = coop_states(model)
        run.source.put(model, ev.ParametersClassified(2.0, 21, states, trainable))
        run.app._drain()  # what has arrived is known, but the tree was not yet drawn again
        await run.press("slash", *"mlp", "enter", "down", "space", "enter", "escape")
        assert run.row.startswith("text_encoder.blocks.0")


async def test_the_gradient_panel_follows_the_cursor_that_a_filter_moves() -> None:
    async with session() as run:
        await run.press("slash", *"blocks.7", "down", "down", "enter")
        await run.pump()
        selection = run.dashboard.gradients.selection
        assert selection is not None
        assert selection.name == run.row
