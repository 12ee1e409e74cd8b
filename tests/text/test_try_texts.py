"""What is said of a try."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol import events as ev
from gradtui.protocol.codec import from_words, words_of
from gradtui.protocol.commands import SetLearningRate, SetTrainable, TryChange
from gradtui.protocol.tries import TriedSide
from gradtui.run.reducer import apply
from gradtui.run.state.changes.changes import changes
from gradtui.run.state.changes.objections import objection_to
from gradtui.run.state.parts.tries import commands_of, on_front
from gradtui.run.state.run_state import RunState
from gradtui.run.text.effects import change_results
from gradtui.run.text.tries import tried_lines, tried_text


def side(change: str, loss: float, ended: str = "") -> TriedSide:
    return TriedSide(change, tuple(loss + 0.001 * (at % 3) for at in range(30)), (0.01,) * 30, 1 << 20, ended=ended)


def test_a_try_is_typed_as_whole_changes() -> None:
    typed = from_words(words_of(["try", "freeze a, b; set-lr head 1e-4", "train-only :head", "steps=20"]), 3)
    assert typed == TryChange(3, ("freeze a, b; set-lr head 1e-4", "train-only :head"), 20)
    assert commands_of("freeze a; set-lr head 1e-4") == [
        SetTrainable(0, "a", False), SetLearningRate(0, "head", 1e-4)
    ]  # fmt: skip
    assert (
        objection_to(TryChange(1, ("undo",)))
        == "undo cannot be tried: freeze, unfreeze, train-only, checkpoint, set-lr and set-mode can"
    )
    assert objection_to(TryChange(1, ())) is not None
    assert objection_to(TryChange(1, ("freeze 'a",))) is not None


def test_peak_that_python_may_have_raised_is_noise() -> None:
    base = 24 << 20
    sides = [replace(side(name, 1.0), peak=base + more) for name, more in (("", 0), ("freeze a", 43 << 10))]
    assert "peak +43.0 KiB (noise)" in tried_text(ev.ChangeTried(1.0, 60, 7, tuple(sides)), 0)
    assert on_front(sides) == {0, 1}
    exact = [replace(each, peak_exact=True) for each in sides]
    assert "peak +43.0 KiB;" in tried_text(ev.ChangeTried(1.0, 60, 7, tuple(exact)), 0)
    assert on_front(exact) == {0}


def test_answer_has_figures_and_calls_noise_noise() -> None:
    worse = TriedSide("freeze a", side("", 1.5).losses, (0.008,) * 30, 1 << 19)
    tried = ev.ChangeTried(1.0, 60, 7, (side("", 1.0), worse))
    assert tried_text(tried, 0) == (
        "tried freeze a on 30 batches: loss +0.500 ± 0, step 10.0 ms → 8.00 ms, peak −512.0 KiB; the run continues without it"
    )
    same = TriedSide("freeze a", tuple(1 + (-1) ** at * 0.1 for at in range(30)), (0.01,) * 30, 1 << 20)
    assert "(noise)" in tried_text(ev.ChangeTried(1.0, 60, 7, (side("", 1.0), same)), 0)


def test_running_try_says_how_far_it_is() -> None:
    state, command = RunState(), TryChange(7, ("freeze a",), 30)
    state.pending[7] = command
    state.step = 11
    assert change_results(changes(state)[0]) == ("waits for the next step",)
    apply(state, ev.TrySideBegan(2.0, 9, 7, 1, "freeze a", 2, 30))
    assert change_results(changes(state)[0]) == ("side 2 of 2, step 3 of 30",)
    apply(state, ev.ChangeTried(3.0, 39, 7, (side("", 1.0), side("freeze a", 1.0)), asks=True))
    assert change_results(changes(state)[0]) == ("asks which side continues",)


def test_failed_or_cut_side_says_why() -> None:
    failed = TriedSide("freeze a", (), (), None, ended="failed: MemoryError, in step, step 1")
    cut = TriedSide("freeze b", side("", 1.0).losses[:12], (0.01,) * 12, None, ended="the run ended in step 13")
    assert tried_lines(ev.ChangeTried(1.0, 60, 7, (side("", 1.0), failed, cut))) == [
        "tried freeze a: failed: MemoryError, in step, step 1",
        "tried freeze b on 12 batches: ended: the run ended in step 13, loss +0 ± 0 (noise), step 10.0 ms → 10.0 ms (noise)",
    ]
