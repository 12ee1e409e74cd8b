"""Keys that change the run, from the press to the answer on the screen."""

from __future__ import annotations

from app_session import session
from fakes import (
    coop_model,
    coop_run,
    coop_states,
    row_of,
)

from gradtui.protocol import events as ev
from gradtui.protocol.commands import (
    Pause,
    Resume,
    RunSteps,
    SaveAllocatorSnapshot,
    SetTrainable,
)
from gradtui.tui.tree.tree_cells import FREEZE, UNFREEZE

MODEL = coop_model()
CTX = ~row_of(MODEL, "ctx")


async def test_space_freezes_a_parameter_shows_it_pending_and_then_applied() -> None:
    async with session() as run:
        await run.go_to("ctx")
        await run.press("space")
        assert run.sink.submitted == [SetTrainable(1, "ctx", False)]
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(FREEZE)
        assert " freeze… " in line
        states, trainable = coop_states(MODEL)
        frozen = states.replace("T", "C"), trainable.replace("1", "0")
        applied = ev.CommandApplied(2.0, 41, SetTrainable(1, "ctx", False), "froze ctx", (CTX,))
        await run.put(applied, ev.ParametersClassified(2.0, 41, *frozen))
        line = run.dashboard.tree_view.text.splitlines()[1]
        assert line.startswith(" ")
        assert " off " in line


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


async def test_a_snapshot_says_where_it_is() -> None:
    async with session() as run:
        await run.press("S")
        assert run.sink.submitted == [SaveAllocatorSnapshot(1)]
        said = "wrote a snapshot of the allocator to /state/run-allocator-1.pickle"
        await run.put(ev.CommandApplied(2.0, 41, SaveAllocatorSnapshot(1), said, ()))
        assert any(said in note.message for note in run.app._notifications)
        await run.press("v")
        assert said in " ".join(run.dashboard.events.text.split())
