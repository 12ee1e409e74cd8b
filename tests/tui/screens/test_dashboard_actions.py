"""Keys, commands of the palette and dialogs for what else is done to a live run."""

from __future__ import annotations

import math

import pytest
from helpers.app_session import Session, session
from helpers.examples import combinations
from helpers.fakes import coop_model, coop_run, row_of
from helpers.lines import line_text
from textual.widgets import Static

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Command,
    RunSteps,
    RunTo,
    SaveCheckpoint,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetTrainable,
    Undo,
    VerifyFreeze,
    ZeroGradients,
)
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo, Phase
from gradtui.tui.actions.action_table import ACTIONS
from gradtui.tui.panels.events import entry_lines
from gradtui.tui.requests.questions import QUESTIONS, ROW_QUESTIONS
from gradtui.tui.requests.requests import REQUESTS
from gradtui.tui.screens.dashboard import Dashboard
from gradtui.tui.screens.form import FormDialog
from gradtui.tui.tree.tree_cells import FREEZE, RECOMPUTED

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")
BLOCK = "text_encoder.blocks.0"
SIZES = [(80, 24), (120, 36)]


def form(run: Session) -> FormDialog:
    assert isinstance(run.app.screen, FormDialog)
    return run.app.screen


def wrong_in(dialog: FormDialog) -> str:
    return str(dialog.query_one("#form-wrong", Static).content)


async def ask(run: Session, action: str, *typed: str) -> None:
    """Do an action as the palette does, and type into the field that has the keys and those after it."""
    await run.do(action)
    for number, text in enumerate(typed):
        if number:
            await run.press("tab")
        await run.press(*text)


def test_every_request_and_question_is_action_of_table() -> None:
    assert {action.id for action in ACTIONS if action.call.startswith("request(")} == {*REQUESTS} - {
        "trace_step",
        "undo",
    }
    assert {action.id for action in ACTIONS if action.call.startswith("ask(")} == {*QUESTIONS, *ROW_QUESTIONS}


async def test_c_switches_checkpointing_of_module() -> None:
    async with session((160, 50)) as run:
        await run.go_to(BLOCK)
        await run.press("c")
        first: Command = SetCheckpointing(1, BLOCK, True)
        assert run.sink.submitted == [first]
        assert marks(run) == [RECOMPUTED]
        index = row_of(MODEL, BLOCK)
        await run.put(ev.CommandApplied(2.0, 41, first, f"checkpoints {BLOCK}, if this step's trial agrees", ()))
        assert marks(run) == [" "]
        await run.put(ev.CheckpointingChanged(2.0, 42, (index,)))
        assert marks(run) == [RECOMPUTED]
        await run.press("c")
        assert run.sink.submitted[-1] == SetCheckpointing(2, BLOCK, False)


def marks(run: Session) -> list[str]:
    """What stands before the saved bytes of the block."""
    tree = run.dashboard.tree_view
    return [
        RECOMPUTED if RECOMPUTED in line else " " for line in tree.text.splitlines() if "▸ 0 " in line or "▾ 0 " in line
    ][:1]


async def test_a_receipt_and_an_answer_are_said() -> None:
    async with session() as run:
        await run.put(
            ev.CommandApplied(2.0, 41, SetMode(1, BLOCK, False), "put it in eval mode", ()),
            ev.ReceiptTaken(2.0, 44, 1, "blocks.0: activations 12.3 MiB → 4.1 MiB, step 10.2 → 12.9 ms", True),
            ev.ReceiptTaken(2.0, 45, 2, "blocks.1 is not checkpointed: it writes to what it is given", False),
        )
        said = [note.text for note in run.said]
        for text in ("put it in eval mode", "4.1 MiB, step 10.2", "blocks.1 is not checkpointed"):
            assert any(text in message for message in said)
        await run.press("v")
        assert "activations 12.3 MiB → 4.1 MiB" in " ".join(run.dashboard.events.text.split())


async def test_answer_is_drawn_as_it_comes() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("v", "space", "space")
        tree, events = run.dashboard.tree_view, run.dashboard.events
        assert FREEZE in tree.text
        assert "waits for" in events.text
        run.source.put(ev.CommandApplied(2.0, 41, SetTrainable(1, "ctx", False), "froze ctx", ()))
        run.app._drain()
        assert FREEZE not in tree.text
        assert "waits for" not in events.text
        assert "froze ctx" in events.text


async def test_change_and_results_are_drawn_immediately() -> None:
    async with session() as run:
        await run.go_to("ctx")
        changes = run.dashboard.changes
        assert "Nothing has been changed yet" in " ".join(changes.text.split())
        await run.press("space", "space")
        assert "○ 40 freeze ctx" in changes.text
        run.source.put(ev.CommandApplied(2.0, 41, SetTrainable(1, "ctx", False), "froze ctx", ()))
        run.app._drain()
        assert "□ 41 froze ctx" in changes.text
        run.source.put(ev.FreezeVerified(3.0, 51, 1, 1, 10, ()))
        run.app._drain()
        assert "for 10 steps" in " ".join(changes.text.split())


async def test_no_notice_lies_over_events_that_say_same() -> None:
    answer = ev.CommandApplied(2.0, 41, SetMode(1, BLOCK, False), "put it in eval mode", ())
    refusal = ev.CommandRejected(2.0, 41, ZeroGradients(2), "there are none")
    async with session((160, 50)) as run:
        await run.press("v")
        await run.put(answer, refusal)
        assert [note.title for note in run.said] == ["Refused"]
        await run.press("question_mark")
        await run.put(answer)
        assert len(run.said) == 2, "under a dialog nobody reads them"


async def test_keys_without_effect_say_why() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("c")
        assert run.sink.submitted == []
        assert any("ctx is a parameter" in note.text for note in run.said)
    async with session(events=[*coop_run(5), ev.RunEnded(9.0, 5, 0, None)]) as run:
        for action in {*REQUESTS, *QUESTIONS}:
            await run.do(action)
        assert run.sink.submitted == []
        assert isinstance(run.app.screen, Dashboard)


async def test_freeze_may_move_state_and_verify() -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        for action in ("freeze_dropping", "freeze_offloading", "verify_freezes"):
            await run.do(action)
        # Nothing in the block trains, so there is nothing to confirm.
        assert run.sink.submitted == [
            SetTrainable(1, BLOCK, False, "drop"),
            SetTrainable(2, BLOCK, False, "offload"),
            VerifyFreeze(3),
        ]


async def test_undo_and_clearing_are_one_key_or_command() -> None:
    async with session() as run:
        await run.press("u")
        await run.do("zero_gradients")
        assert run.sink.submitted == [Undo(1), ZeroGradients(2)]


async def test_the_mode_asked_for_is_the_other_one() -> None:
    async with session() as run:
        await run.go_to(BLOCK)
        await run.do("toggle_mode")
        first = run.sink.submitted[0]
        assert isinstance(first, SetMode)
        await run.do("toggle_mode")
        assert run.sink.submitted[1] == SetMode(2, BLOCK, not first.training)


TYPED: list[tuple[str, list[str], Command]] = [
    ("run_steps", ["25"], RunSteps(1, 25)),
    ("run_to", ["1,000"], RunTo(1, 1000)),
    ("save_checkpoint", [""], SaveCheckpoint(1, "")),
    ("save_checkpoint", ["run/best.pt"], SaveCheckpoint(1, "run/best.pt")),
    ("set_group", ["3e-4"], SetGroup(1, 0, 0, 3e-4, None)),
    ("set_group", ["*0.5", "0.1"], SetGroup(1, 0, 0, 0.001, 0.1)),
    ("set_learning_rate", ["3e-4"], SetLearningRate(1, "", 3e-4)),
    ("set_learning_rate", ["*0.5"], SetLearningRate(1, "", 0.001)),
]


@pytest.mark.parametrize(("asked", "size"), combinations(TYPED, SIZES))
async def test_what_is_typed_is_asked_for(asked: tuple[str, list[str], Command], size: tuple[int, int]) -> None:
    action, typed, command = asked
    async with session(size) as run:
        await run.put(ev.GroupsRead(2.0, 40, ((GroupSettings(0.002, 0.0),),)))
        await ask(run, action, *typed)
        assert form(run).query_one("#form-wrong").region.bottom <= size[1]
        await run.press("enter")
        assert run.sink.submitted == [command]
        assert isinstance(run.app.screen, Dashboard)


WRONG: list[tuple[str, list[str], str]] = [
    ("run_steps", ["none"], "A number of steps is a whole number from 1 on, not none."),
    ("run_steps", ["0"], "A number of steps is a whole number from 1 on, not 0."),
    ("run_steps", [""], "Type a number of steps: a whole number from 1 on."),
    ("run_to", ["7"], "Step 7 is over: 40 steps have been executed."),
    ("run_to", ["x"], "A step is a whole number from 41 on, not x."),
    ("save_checkpoint", ["runs/"], "runs/ is a directory: name a file in it."),
    ("set_group", ["-1"], "A learning rate is a number from 0 on, such as 3e-4, not -1."),
    ("set_group", ["nan"], "A learning rate is a number from 0 on, such as 3e-4, not nan."),
    ("set_group", ["*2"], "What the learning rate is now is not known: type the number itself."),
    ("set_group", ["", "much"], "A weight decay is a number from 0 on, such as 3e-4, not much."),
    ("set_learning_rate", [""], "Type a learning rate: a number from 0 on, such as 3e-4."),
    ("set_learning_rate", ["x"], "A learning rate is a number from 0 on, such as 3e-4, not x."),
    ("set_group", [""], "Type a learning rate, a weight decay, or both."),
    (
        "set_group",
        ["1e39"],
        "A learning rate of 1e+39 would break the run: its limit is 1e+30, so that float32 does not overflow.",
    ),
    ("run_steps", ["9223372036854775808"], "Its count needs more than 64 bits."),
]


async def test_error_is_said_and_nothing_sent() -> None:
    async with session((80, 24)) as run:
        for action, typed, wrong in WRONG:
            await ask(run, action, *typed)
            await run.press("enter")
            assert wrong_in(form(run)) == wrong, typed
            await run.press("1")
            assert wrong_in(form(run)) == ""
            await run.press("escape")
            assert isinstance(run.app.screen, Dashboard)
            assert run.sink.submitted == []


async def test_an_optimizer_that_is_gone_is_not_offered() -> None:
    found = ev.OptimizersFound(2.0, 40, (OptimizerInfo("AdamW", 1, (), 0), OptimizerInfo("SGD", 1, (CTX,), 0, (0,))))
    gone = ev.GroupsRead(2.0, 40, ((), (GroupSettings(0.002, 0.0),)))
    async with session() as run:
        await run.put(found, gone)
        await ask(run, "set_group", "3e-4")
        assert "AdamW" not in str(form(run).query_one("#form-notes", Static).content)
        await run.press("enter")
        assert run.sink.submitted == [SetGroup(1, 1, 0, 3e-4, None)]
        await run.put(ev.GroupsRead(2.0, 41, ((), ())))
        await ask(run, "set_group")
        assert isinstance(run.app.screen, Dashboard)
        assert any("There is no optimizer left" in note.text for note in run.said)


async def test_a_group_that_is_not_there_is_said() -> None:
    async with session() as run:
        await ask(run, "set_group")
        await run.press("shift+tab", "backspace", "5", "enter")
        assert "group 5" in wrong_in(form(run))


async def test_keys_type_while_form_is_open() -> None:
    async with session() as run:
        await run.press("N", "c", "u", "space", "q")
        assert run.sink.submitted == []
        assert isinstance(run.app.screen, FormDialog)


BAD = ev.NonFiniteFound(2.0, 41, 1, "NaN", Phase.BACKWARD, 40, parameter="ctx", holds=True)


@pytest.mark.parametrize("size", SIZES)
async def test_first_nan_is_said_and_stays(size: tuple[int, int]) -> None:
    said = "backward of step 41: loss finite, gradient of ctx NaN"
    async with session(size) as run:
        paused = ev.PauseChanged(2.0, 41, True, f"first NaN: {said}")
        await run.put(BAD, ev.GradientsMeasured(2.0, 41, math.nan, 0.5, None), paused)
        assert any(said in note.text and note.severity == "warning" for note in run.said)
        assert "NaN at 41" in run.dashboard.header.text
        await run.press("v")
        lines = entry_lines(next(entry for entry in run.app.run_state.log if entry.kind == "not finite"), 160)
        events = " ".join(line_text(line) for line in lines)
        assert said in events
        assert "training pauses, as requested" in " ".join(events.split())
        assert said[: 200 if size[0] > 80 else 16] in " ".join(run.dashboard.gradients.text.split())
        await run.put(ev.GradientsMeasured(3.0, 42, 1.0, 0.5, None))
        assert "NaN at 41" not in run.dashboard.header.text, "the newest values are finite again"
        assert said[: 200 if size[0] > 80 else 16] in " ".join(run.dashboard.gradients.text.split())
