"""The dialog "Freeze…": what it offers, what that would leave, and the command it sends."""

from __future__ import annotations

import pytest
from helpers.app_session import Session, session
from helpers.fakes import coop_model, coop_run
from helpers.states import state_after
from textual.widgets import OptionList, Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetRowsTrainable, SetTrainable, TrainOnly
from gradtui.run.state.changes.toggles import pending_parameters
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree.selection import covering
from gradtui.tui.requests import freeze_choice
from gradtui.tui.requests.freeze_choice import MODES
from gradtui.tui.screens.freeze import FreezeDialog

MODEL = coop_model()


def dialog(run: Session) -> FreezeDialog:
    assert isinstance(run.app.screen, FreezeDialog)
    return run.app.screen


def elements(paths: object) -> int:
    return sum(info.count for info in MODEL.parameters if paths(info.path))  # type: ignore[operator]


async def test_enter_sends_the_preset_under_the_bar() -> None:
    async with session() as run:
        await run.press("f")
        words = [choice.selection for choice in dialog(run)._presets]
        assert ":last-2-blocks" in words
        assert words[-1] == ":all"
        await run.press(*["down"] * (words.index(":last-2-blocks") + 1), "enter")
        assert run.app.screen is run.dashboard
        assert run.sink.submitted == [TrainOnly(1, ":last-2-blocks")]


async def test_nothing_is_chosen_at_first() -> None:
    async with session() as run:
        await run.press("f")
        assert str(dialog(run).chosen).startswith("Nothing is chosen yet")
        await run.press("enter", "tab", "enter")
        assert isinstance(run.app.screen, FreezeDialog)
        assert run.sink.submitted == []


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_each_choice_lists_names_what_stops_and_bytes(size: tuple[int, int]) -> None:
    async with session(size) as run:
        await run.press("f")
        rows = [str(option.prompt) for option in run.app.screen.query_one(OptionList).options]
        assert len(rows) == len(dialog(run)._presets)
        blocks = next(row for row in rows if row.startswith(" :last-2-blocks"))
        names, change = blocks.split("\n")
        assert names.split(None, 1)[1].startswith("leaves 24 tensors, 1.58M · ")
        assert change.strip().startswith("stops ctx · gradients about +")
        await run.press("down")
        result = str(run.app.screen.query_one("#freeze-result", Static).content)
        assert "stops ctx · gradients about" in result
        assert "now 1 tensor, 1,024 parameters" in result


async def test_typed_names_are_counted_immediately() -> None:
    async with session() as run:
        await run.press("f", *"ct")
        assert "'ct'" in str(dialog(run).chosen)
        await run.press("enter")
        assert run.sink.submitted == []
        await run.press("x")
        chosen = dialog(run).chosen
        assert not isinstance(chosen, str)
        assert (chosen.tensors, chosen.elements) == (1, elements(lambda path: path == "ctx"))
        await run.press("enter")
        assert run.sink.submitted == [TrainOnly(1, "ctx")]


async def test_rows_of_parameter_are_typed_behind_its_path() -> None:
    async with session() as run:
        await run.press("f", *"ctx --rows 0:9")
        assert dialog(run).chosen.startswith("--rows ")
        await run.press("tab")
        assert dialog(run).chosen.startswith("0:9 ")
        await run.press("backspace", "3")
        result = str(run.app.screen.query_one("#freeze-result", Static).content)
        assert ": 1 of 4 rows of ctx " in result
        await run.press("enter")
        assert run.sink.submitted == [SetRowsTrainable(1, "ctx", False, "0:3")]


@pytest.mark.parametrize(("tabs", "command"), [(1, False), (2, True)])
async def test_tab_changes_what_is_done(tabs: int, command: bool) -> None:
    async with session() as run:
        await run.press("f", *["tab"] * tabs, *"*.bias", "enter")
        assert run.sink.submitted == [SetTrainable(1, "*.bias", command)]


async def test_arrow_returns_and_escape_sends_nothing() -> None:
    async with session() as run:
        await run.press("f", "x", "down", "up")
        assert not isinstance(dialog(run).chosen, str)
        await run.press("escape")
        assert run.app.screen is run.dashboard
        assert run.sink.submitted == []


async def test_nothing_to_choose_without_model() -> None:
    async with session(events=[]) as run:
        await run.press("f")
        assert run.app.screen is run.dashboard
    async with session() as run:
        await run.put(ev.RunEnded(9.0, 40, 0, None))
        await run.press("f")
        assert run.app.screen is run.dashboard


async def test_schedule_is_written_where_person_is_told() -> None:
    saved: list[RunState] = []
    full = False

    def save(state: RunState) -> str:
        if full:
            raise OSError(28, "No space left on device")
        saved.append(state)
        return "written to x"

    async with session(save_schedule=save) as run:
        await run.do("export_schedule")
        assert saved == []
        await run.put(ev.CommandApplied(1.0, 3, SetTrainable(1, "ctx", False), "froze ctx", (0,)))
        await run.do("export_schedule")
        assert saved == [run.app.run_state]
        full = True
        await run.do("export_schedule")
        assert [each.text.split()[0] for each in run.said] == ["Nothing", "written", "It"]


async def test_a_schedule_that_fails_is_said_at_once() -> None:
    async with session() as run:
        await run.put(ev.ScheduleNoted(1.0, 0, "entry 1 (step 3): there is no module", True))
        assert [each.text.split(":")[0] for each in run.said] == ["entry 1 (step 3)"]
        assert run.app.run_state.log[-1].kind == "schedule"


def state() -> RunState:
    return state_after(*coop_run(3))


def test_what_is_left_follows_from_what_trains_now() -> None:
    known = state()
    now = {index for index, flag in enumerate(known.tree.trainable) if flag == "1"}
    biases = {index for index, info in enumerate(MODEL.parameters) if info.path.endswith(".bias")}
    expected = {"train only": biases, "freeze": now - biases, "unfreeze": now | biases}
    assert 0 < len(now) < len(MODEL.parameters)
    for mode in MODES:
        choice = freeze_choice.typed(known, mode, "*.bias")
        assert not isinstance(choice, str)
        assert choice.tensors == len(expected[mode])
        assert choice.elements == sum(MODEL.parameters[index].count for index in expected[mode])
        assert choice.selected == len(biases)


def test_names_are_of_largest_selected_modules() -> None:
    tree = state().tree
    of = {info.path: index for index, info in enumerate(tree.parameters)}
    block = [index for path, index in of.items() if path.startswith("text_encoder.blocks.3.")]
    assert covering(tree, [of["ctx"], *block]) == ["ctx", "text_encoder.blocks.3"]
    assert covering(tree, [*block[:2], block[-1]]) == [
        "text_encoder.blocks.3.ln_1", tree.parameters[block[-1]].path,
    ]  # fmt: skip
    assert covering(tree, range(len(of))) == ["CoOp"]
    assert covering(tree, ()) == []


def test_choice_without_effect_says_so() -> None:
    words = {}
    for mode in MODES:
        choice = freeze_choice.typed(state(), mode, "ctx")
        assert not isinstance(choice, str)
        words[mode] = choice.change
    assert words["train only"] == words["unfreeze"] == "nothing would change"
    assert words["freeze"].startswith("Nothing would train")


def test_little_is_told_before_first_step() -> None:
    known = state()
    known.tree.trainable = "-" * len(MODEL.parameters)
    only, freezing = (freeze_choice.Presets(known).choices(mode)[0] for mode in ("train only", "freeze"))
    assert only.tensors is not None
    assert freezing.tensors is None
    assert freezing.left.startswith("not known")


def test_pending_is_marked_where_effective() -> None:
    known = state()
    known.note_submitted(TrainOnly(5, "*.bias"))
    marks = pending_parameters(known)
    for index, info in enumerate(MODEL.parameters):
        trains, wanted = known.tree.trainable[index] == "1", info.path.endswith(".bias")
        assert marks.get(index) == (wanted if trains != wanted else None)
    known.pending.clear()
    known.note_submitted(SetTrainable(6, "re:no(", False))
    assert pending_parameters(known) == {}
