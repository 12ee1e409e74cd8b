from __future__ import annotations

import dataclasses

import pytest
from helpers.fakes import coop_run, ledgers, started
from helpers.lines import line_text
from helpers.metric_events import metrics_logged
from helpers.states import state_after
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command, Pause, Resume, RunSteps, RunTo, StopTraining
from gradtui.protocol.vocabulary import GroupSettings, Phase
from gradtui.run.reducer import apply
from gradtui.run.state.memory.run_memory import memory_now
from gradtui.run.state.run_state import RunState
from gradtui.run.text import end_rows, short_bytes
from gradtui.transport.progress_bars import ProgressBar
from gradtui.tui.panels.header import HeaderState, header_line
from gradtui.tui.rendering.lines import line_width
from gradtui.tui.rendering.palette import STALE


def text(state: RunState, width: int = 160, facts: HeaderState | None = None) -> str:
    return line_text(header_line(state, facts or HeaderState(0.008), width))


RUNNING = state_after(*coop_run(40))


@pytest.mark.parametrize("width", [80, 90, 100, 120, 140, 160, 220])
def test_everything_is_there_at_every_width(width: int) -> None:
    shown = text(RUNNING, width)
    assert line_width(header_line(RUNNING, HeaderState(0.008), width)) == width
    # 38 µs of a step of 41.5 ms are 0.09 %; the UI thread takes 0.8 %.
    for part in ("●", "coop_like.py", "step 40", "24.1/s", "2.7 s", "loss 1.16", "MiB", "overhead 0.9%"):
        assert part in shown


def test_overhead_is_whole_run_at_end() -> None:
    state = state_after(*coop_run(40))
    state.cost.own_seconds, state.cost.step_seconds, state.cost.steps = 0.5, 4.0, 39
    assert "overhead 0.9%" in text(state), "lately"
    apply(state, ev.RunEnded(9.0, 40, 0, None))
    assert "overhead 12%" in text(state)
    (row,) = [row.text for row in end_rows(state) if row.label == "overhead"]
    assert row.startswith("12.5 % of the run (")


@given(
    step=st.integers(0, 10**9), micro=st.integers(0, 10**9), loss=st.floats(), rate=st.floats(), cost=st.floats(),
    share=st.none() | st.floats(), phase=st.sampled_from(Phase), width=st.sampled_from([80, 100, 120, 160]),
    left=st.none() | st.integers(0, 10**9), bar=st.none() | st.floats(0, 10**9), seconds=st.floats(0, 10**9),
)  # fmt: skip
def test_nothing_jumps_whatever_the_values(
    step: int, micro: int, loss: float, rate: float, cost: float, share: float | None, phase: Phase, width: int,
    left: int | None, bar: float | None, seconds: float,
) -> None:  # fmt: skip
    state = state_after(started())
    plain = text(state, width)
    state.step, state.micro_steps, state.steps_per_second, state.phase = step, micro, rate, phase
    state.cost.recent_share = cost
    state.loss.append(1, loss)
    state.epoch_steps, state.epoch_steps_left, state.seconds = left, left, seconds
    facts = HeaderState(share, bars=[ProgressBar("", 10, bar)] if bar is not None else [])
    shown = text(state, width, facts)
    assert line_width(header_line(state, facts, width)) == width
    words = ("step ", "loss ", "overhead ")
    assert [shown.index(word) for word in words] == [plain.index(word) for word in words]


@pytest.mark.parametrize(
    ("tokens", "one_size", "expected"),
    [(None, True, "1,280 samples/s"), (512.0, True, "655k tokens/s"), (512.0, False, "≈655k tokens/s")],
)
def test_wide_screen_has_samples_or_tokens_of_second(tokens: float | None, one_size: bool, expected: str) -> None:
    state = state_after(*coop_run(40))
    state.steps_per_second = 20.0
    without = [text(state, width) for width in (80, 160, 200)]
    state.throughput.samples = ev.SamplesMeasured(1.0, 40, 40 * 64, 40, 64.0, 1, True, one_size, tokens)
    narrow, middle, wide = (text(state, width) for width in (80, 160, 200))
    assert [narrow, middle] == without[:2]
    assert expected in wide
    assert wide.replace(expected, " " * len(expected)) == without[2]


@pytest.mark.parametrize("width", [120, 160])
def test_time_left_has_place_of_its_own(width: int) -> None:
    state = state_after(*coop_run(40))
    unknown = text(state, width)
    assert "left" not in unknown
    state.epoch_steps, state.epoch_steps_left, state.steps_per_second = 100, 30, 2.0
    shown = text(state, width)
    assert "epoch left 15 s " in shown
    of_run = text(state, width, HeaderState(0.008, bars=[ProgressBar("", 45, 130.0)]))
    assert " left 2m 10s " in of_run
    assert "epoch left" not in of_run
    places = [[line.index(word) for word in ("step ", "loss ", "overhead ")] for line in (unknown, shown, of_run)]
    assert places[0] == places[1] == places[2]


@pytest.mark.parametrize("width", [80, 160])
def test_target_step_is_shown_until_reached(width: int) -> None:
    state = state_after(*coop_run(40))
    before = text(state, width)
    apply(state, ev.CommandApplied(1.0, 40, RunTo(1, 12_345), "run to step 12,345", ()))
    shown = text(state, width)
    assert ("until 12,345" if width == 160 else "→12.3k") in shown
    assert [shown.index(word) for word in ("step ", "loss ", "overhead ")] == [
        before.index(word) for word in ("step ", "loss ", "overhead ")
    ]
    apply(state, ev.PauseChanged(2.0, 12_345, True))
    assert "until" not in text(state, width)
    assert "→" not in text(state, width)


@pytest.mark.parametrize("command", [Resume(2), Pause(2), RunSteps(2)])
def test_other_command_replaces_target_step(command: Command) -> None:
    state = state_after(*coop_run(40), ev.CommandApplied(1.0, 40, RunTo(1, 12_345), "", ()))
    apply(state, ev.CommandApplied(1.0, 41, command, "", ()))
    assert state.runs_to is None


def test_paused_run_goes_on_to_step() -> None:
    state = state_after(*coop_run(40), ev.PauseChanged(1.0, 40, True))
    apply(state, ev.CommandApplied(1.0, 40, RunTo(1, 12_345), "", ()))
    apply(state, ev.PauseChanged(1.0, 40, False))
    assert state.runs_to == 12_345


def test_a_narrow_terminal_still_gets_one_line() -> None:
    assert all(line_width(header_line(RUNNING, HeaderState(), width)) >= width for width in (20, 40, 60))


def test_forty_cells_have_step_and_loss_without_overhead() -> None:
    shown = text(RUNNING, 40)
    assert line_width(header_line(RUNNING, HeaderState(0.008), 40)) == 40
    assert "step 40" in shown
    assert "loss 1.16" in shown
    assert "overhead" not in shown


def test_what_the_run_is_doing() -> None:
    waiting = state_after(*coop_run(3))
    waiting.note_submitted(Pause(1))
    resuming = state_after(*coop_run(3), ev.PauseChanged(1.0, 3, True))
    resuming.note_submitted(Resume(1))
    stopping = state_after(*coop_run(3))
    stopping.note_submitted(StopTraining(1))
    shown = {
        "loading": state_after(started()),
        "running": RUNNING,
        "pausing": waiting,
        "paused": state_after(*coop_run(3), ev.PauseChanged(1.0, 3, True)),
        "resumes": resuming,
        "stops": stopping,
        "ended": state_after(*coop_run(3), ev.RunEnded(2.0, 3, 0, None)),
        "failed": state_after(*coop_run(3), ev.RunEnded(2.0, 3, 1, "Traceback ...\nValueError: no")),
        "stopped": state_after(*coop_run(3), ev.RunEnded(2.0, 3, 130, "Traceback ...\nKeyboardInterrupt")),
    }
    for word, state in shown.items():
        for width in (80, 160):
            assert (word in text(state, width)) is (word != "running")


def test_an_exit_code_is_not_shown_as_success() -> None:
    assert "✔" in text(state_after(started(), ev.RunEnded(1.0, 0, 0, None)))
    assert "✖" in text(state_after(started(), ev.RunEnded(1.0, 0, 3, None)))


def test_dropped_events_are_said_if_any() -> None:
    assert "dropped" not in text(RUNNING)
    assert "dropped 12" in text(RUNNING, facts=HeaderState(None, 12))


def test_loss_that_is_not_finite_is_error() -> None:
    state = state_after(*coop_run(3))
    state.loss.append(4, float("nan"))
    assert ("NaN", "error") in [(part.strip(), role) for part, role in header_line(state, HeaderState(), 120)]


def test_a_script_name_cannot_command_the_terminal() -> None:
    state = state_after(dataclasses.replace(started(), script="a\x1b[31mb.py"))
    assert "\x1b" not in text(state)


def test_micro_steps_are_shown_if_different() -> None:
    state = state_after(*coop_run(40))
    assert "micro" not in text(state)
    state.micro_steps = 160
    assert "micro 160" in text(state)
    state.micro_steps, state.skipped_steps = 43, 2
    assert "micro" not in text(state), "a skipped step has a backward too, and so has the one under way"


def test_iteration_is_shown_where_it_is_not_step() -> None:
    state = state_after(*coop_run(40))
    assert "iter " not in text(state)
    state.iterations = 20
    assert "iter  20" in text(state)


def test_the_learning_rate_and_that_there_are_others() -> None:
    state = state_after(*coop_run(3))
    one = GroupSettings(1e-3, 0.0)
    apply(state, ev.GroupsRead(1.0, 3, ((one,),)))
    assert "lr 1e-3 " in text(state)
    apply(state, ev.GroupsRead(1.0, 4, ((one, GroupSettings(3.5e-4, 0.0)),)))
    assert "lr ≤1e-3" in text(state)


def test_the_memory_is_what_training_added() -> None:
    state = state_after(*coop_run(3))
    # `load` ends with 1 MiB that no category explains. The newest phase is `zero_grad` of step 1.
    held = state.phases[Phase.ZERO_GRAD].last
    assert held is not None
    total = (held.held.total or 0) - 1024 * 1024
    assert f"memory {short_bytes(total)}" in text(state)
    highest = state.phases[Phase.FORWARD].peak
    assert highest is not None
    assert f"peak ≥{short_bytes(highest - 1024 * 1024)}" in text(state)


def roles(state: RunState, width: int) -> dict[str, str]:
    return {part.strip(): role for part, role in header_line(state, HeaderState(), width)}


def test_old_loss_is_dim_and_has_its_step() -> None:
    state = RunState(step=333, steps_per_second=5.0)
    state.loss.append(323, 0.573)
    # The place of the loss's course has six cells at this width.
    assert (roles(state, 160)["0.573"], roles(state, 160)["@323"]) == (STALE, "muted")
    assert roles(state, 220)["step 323"] == "muted"
    assert roles(state, 80)["0.573"] == STALE
    state.loss.append(330, 0.6)
    assert roles(state, 220)["0.600"] == "text"
    assert "323" not in text(state, 220)


def test_loss_that_nothing_can_read_is_dash() -> None:
    state = RunState(step=333, steps_per_second=5.0, steps_without_loss=330)
    state.loss.append(3, 0.573)
    for width in (80, 120, 160, 220):
        assert "loss –" in text(state, width)
        assert "0.573" not in text(state, width)


def test_old_memory_is_dim() -> None:
    state = RunState(step=333, steps_per_second=5.0)
    for event in ledgers(9.0, 323):
        apply(state, event)
    now = short_bytes(memory_now(state))
    assert roles(state, 160)[now] == STALE
    for event in ledgers(10.0, 324):
        apply(state, event)
    assert roles(state, 160)[now] == "text"


@pytest.mark.parametrize("width", [80, 100, 120, 160, 220])
def test_pinned_metric_has_its_place_and_overhead_stays(width: int) -> None:
    state = state_after(*coop_run(40), metrics_logged())
    state.metrics.pinned = "val acc"
    line = header_line(state, HeaderState(0.008), width)
    assert line_width(line) == width
    for part in ("●", "step 40", "24.1/s", "loss 1.16", "val/acc", "0.650", "overhead 0.9%"):
        assert part in text(state, width)
    state.metrics.pinned = "nothing yet"
    waiting = text(state, width)
    assert len(waiting) == len(text(state_after(*coop_run(40)), width))
    assert "0.650" not in waiting
    assert waiting.index("loss") == text(state, width).index("loss")


def test_old_value_of_pinned_metric_names_its_step() -> None:
    state = state_after(*coop_run(400), metrics_logged())
    state.metrics.pinned = "val/accuracy"
    spans = header_line(state, HeaderState(0.008), 160)
    assert ("0.650  ", STALE) in [(f"{part:7}", role) for part, role in spans if part.startswith("0.650")]
    assert "@30" in text(state, 160)
