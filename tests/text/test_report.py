"""What the report without a screen says of a run's end."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.fakes import coop_model, coop_run, coop_states, device_sample, started
from helpers.scripted_runs import CALLS
from helpers.states import state_after
from helpers.summaries import report_of

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.findings import Finding, Level, Status


def closing(*events: ev.Event) -> str:
    state = state_after(*events)
    return "\n".join(report_of(state))


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (ev.RunEnded(1.0, 0, 0, None), "ran to its end without training anything in this process: no backward"),
        (ev.RunEnded(1.0, 0, 1, "Traceback\nValueError: x"), "failed before it trained anything in this process"),
        (ev.RunEnded(1.0, 0, 3, None), "failed before it trained anything in this process"),
    ],
)
def test_a_run_that_never_trained(ending: ev.RunEnded, words: str) -> None:
    assert words in closing(started(), ending)
    assert "child processes" not in closing(started(), ending)


def test_run_that_could_not_be_watched_is_unknown() -> None:
    failed = ev.ProbeFailed(0.5, 0, ev.WATCHING, "MemoryError: ", True)
    text = closing(started(), failed, ev.RunEnded(1.0, 0, 0, None))
    assert "without training" not in text
    assert "unknown, because gradtui could not watch the script: MemoryError" in text


def test_findings_follow_when_the_first_step_fails() -> None:
    state = state_after(started(), ev.RunEnded(1.0, 0, 1, "Traceback\nRuntimeError: x"))
    state.findings = [Finding("GT112", Level.ERROR, Status.CONFIRMED, "nothing trains", "why", "train something", 0, 0)]
    first, second = report_of(state)
    assert first.startswith("the script failed before it trained anything")
    assert second == "error GT112: nothing trains; train something"


def test_script_without_backward_is_said_to_train() -> None:
    backward = ev.PhaseTime(Phase.BACKWARD, 0.5, 30)
    asked = ev.Progress(1.0, 0, 0, 0, 0, (), (backward,), 0.0, 1, 1)
    text = closing(started(), asked, ev.RunEnded(1.0, 0, 0, None))
    assert "without training anything" not in text
    assert "the script called torch.autograd.grad or torch.func 30 times, and never backward() or an optimizer" in text
    assert "failed" not in text
    failed = closing(started(), asked, ev.RunEnded(1.0, 0, 1, "Traceback\nValueError: x"))
    assert failed.startswith("the script failed. It called torch.autograd.grad or torch.func 30 times")


@pytest.mark.parametrize(("seconds", "told"), [(0.0, False), (0.3, False), (34.56, True)])
def test_child_processes_that_may_have_trained_are_mentioned(seconds: float, told: bool) -> None:
    text = closing(started(), ev.RunEnded(1.0, 0, 0, None, seconds))
    words = f"its child processes used {seconds:.1f} s of CPU time; gradtui does not show what they train"
    assert (words in text) == told


def test_states_are_a_list_that_can_be_read() -> None:
    model = coop_model()
    letters, _ = coop_states(model)
    counts = {letter: letters.count(letter) for letter in letters}
    assert f"parameter tensors: trains {counts['T']}, off {counts['C']}, passes {counts['F']}" in closing(*coop_run(5))


def test_unreached_and_orphan_parameters_are_named() -> None:
    model = coop_model()
    letters, flags = coop_states(model)
    paths = [info.path for info in model.parameters]
    changed = "UUUUUOO" + letters[7:]
    text = closing(*coop_run(5), ev.ParametersClassified(9.0, 5, changed, "1" * 7 + flags[7:]))
    # The first three of five, in one line for each reason.
    named = [line for line in text.splitlines() if line.startswith(("unreached: ", "no optimizer: "))]
    assert f"no optimizer: {paths[5]}, {paths[6]} (only the script itself can move it)" in named
    assert sum(line.startswith("unreached: ") for line in named) == len(named) - 1 > 0
    assert named[0].startswith(f"unreached: {paths[0]}")
    cleared = ev.ParametersClassified(9.0, 5, changed, "1" * 7 + flags[7:], "c" * 5 + "-" * (len(letters) - 5))
    assert f"unreached: {', '.join(paths[:3])} and 2 more (backward stored the gradient" in closing(
        *coop_run(5), cleared
    )


def test_a_model_is_named_once() -> None:
    found = coop_model()

    def named(name: str) -> str:
        return closing(
            *coop_run(3), dataclasses.replace(found, models=(dataclasses.replace(found.models[0], name=name),))
        )

    for name, line in (("model", "model CoOp"), ("CoOp", "model CoOp"), ("teacher", "model teacher (CoOp)")):
        (shown,) = [text for text in named(name).splitlines() if text.startswith("model ")]
        assert shown.partition(":")[0] == line


@pytest.mark.parametrize(("module", "words"), [(0, "in forward at CoOp: 3.0 MiB"), (-1, "in forward: 3.0 MiB")])
def test_peak_within_step_has_place_that_has_name(module: int, words: str) -> None:
    peak, highest = 3 << 20, (None,) * len(coop_model().modules)
    traced = ev.StepMemoryProfiled(
        9.0, 3, (1, peak), 2, ((Phase.FORWARD, 0),), peak, Phase.FORWARD, module, (), highest, True
    )
    assert f"within a step memory was highest {words}" in closing(*coop_run(3), traced)


def test_a_peak_names_its_models_where_several_ran() -> None:
    run = coop_run(3)
    found = coop_model()
    infos = [dataclasses.replace(found.models[0], name="net", number=number) for number in (1, 2)]
    one, other = (dataclasses.replace(found, models=(info,)) for info in infos)
    measured = [e for e in run if isinstance(e, ev.GradientFlowMeasured)]
    last = next(e for e in reversed(run) if isinstance(e, ev.MemoryMeasured) and e.phase is Phase.FORWARD)
    high, low = (dataclasses.replace(last, peak=gib << 30, models=(number,)) for number, gib in ((1, 5), (2, 4)))
    time = ev.Progress(9.0, 3, 3, 3, 0, (3,), (ev.PhaseTime(Phase.FORWARD, 1.0, 3),), 0.0, 1, 1)
    assert "peak ≥ 5.0 GiB\n" in closing(started(), one, *measured, high, time) + "\n"
    # Both are called `net`, so a number tells them apart.
    text = closing(started(), one, *measured, high, other, *measured, low, time) + "\n"
    assert "peak ≥ 5.0 GiB with net #1\n" in text
    assert [line.partition(":")[0] for line in text.splitlines() if line.startswith("model ")] == [
        "model net #1 (CoOp)", "model net #2 (CoOp)",
    ]  # fmt: skip


def test_peak_names_its_model_among_several() -> None:
    found = coop_model()
    other = dataclasses.replace(found, models=(dataclasses.replace(found.models[0], name="student", number=9),))
    index = next(index for index, module in enumerate(found.modules) if module.path == "text_encoder")
    traced = ev.StepMemoryProfiled(
        9.0,
        3,
        (1, 2),
        2,
        ((Phase.FORWARD, 0),),
        3 << 20,
        Phase.FORWARD,
        index,
        (),
        (None,) * len(found.modules),
        True,
    )
    assert "highest in forward at text_encoder: 3.0 MiB" in closing(*coop_run(3), traced)
    assert "highest in forward at text_encoder of student: 3.0 MiB" in closing(*coop_run(3), other, traced)


def test_held_graphs_have_number_and_age() -> None:
    alive = ev.GraphsAlive(9.0, 3, 12, True, 2, 5 << 20)
    words = "the script holds the graphs of at least 12 forwards that no backward has reached, since step 2: 5.0 MiB"
    assert words in closing(*coop_run(3), alive)
    early = dataclasses.replace(alive, forwards=1, at_least=False, since_step=0)
    assert "the graphs of 1 forward that no backward has reached, since before the first" in closing(
        *coop_run(3), early
    )
    assert "the script holds" not in closing(*coop_run(3), alive, dataclasses.replace(alive, forwards=0))
    last = next(e for e in reversed(coop_run(3)) if isinstance(e, ev.MemoryMeasured) and e.phase is Phase.FORWARD)
    recorded = dataclasses.replace(last, phase=Phase.EVAL)
    words = "evaluation did not run under torch.no_grad(): 38.0 MiB of activations"
    calls = dataclasses.replace(CALLS, unused_eval_graphs=1)
    assert words in closing(*coop_run(3), calls, recorded)
    # A teacher under no_grad, between the student's forward and its backward.
    assert words not in closing(*coop_run(3), dataclasses.replace(calls, unused_eval_graphs=0), recorded)


def test_norms_of_two_models_are_not_run_together() -> None:
    found = coop_model(blocks=1)
    other = dataclasses.replace(found, models=(dataclasses.replace(found.models[0], number=9),), step=3)
    text = closing(*coop_run(3), other, ev.GradientsMeasured(9.0, 4, 0.5, None, None))
    assert "gradient norm 0.5 (step 4), read at 1 step since the models changed at step 3" in text


def test_norm_range_is_of_read_steps() -> None:
    readings = [(3, 6.0), (10, 2.0), (20, 7.5), (33, 4.5)]
    events = [ev.GradientsMeasured(9.0, step, total, None, None) for step, total in readings]
    end = ev.Progress(9.5, 40, 40, 40, 0, (40,), (), 0.0, 1, 1)
    text = closing(*events, end)
    expected = "gradient norm 6 (step 3) → 4.5 (step 33), min 2 (step 10), max 7.5 (step 20), read at 4 of 40 steps"
    assert expected in text.splitlines()
    unsure = ev.GradientsMeasured(9.0, 40, 4.0, None, None, as_applied=False)
    assert (
        "at 1 of these steps the norm was read at the end of backward: the script may have clipped the gradients afterwards"
        in closing(*events, unsure, end)
    )


def test_norms_of_several_optimizers_are_said_to_be() -> None:
    readings = [ev.GradientsMeasured(9.0, step, total, None, None) for step, total in ((1, 6.0), (2, 2.0))]
    both = ev.Progress(9.5, 8, 8, 8, 0, (4, 4), (), 0.0, 1, 1)
    assert "read at 2 of 8 steps of 2 optimizers" in closing(*readings, both)
    one = ev.Progress(9.5, 8, 8, 8, 0, (0, 8), (), 0.0, 1, 1)
    assert "read at 2 of 8 steps" in closing(*readings, one)
    assert "optimizers" not in closing(*readings, one)
    # How many have stepped since then is not counted.
    found = coop_model()
    other = dataclasses.replace(found, models=(dataclasses.replace(found.models[0], number=9),), step=2)
    later = closing(*coop_run(2), other, ev.GradientsMeasured(9.0, 3, 0.5, None, None), both)
    assert "of 6 steps since the models changed at step 2" in later


def test_norms_behind_device_are_counted() -> None:
    behind = ev.Progress(9.0, 4, 1, 1, 0, (1,), (), 0.0, 1, 1, 1_234)
    assert "earlier readings" not in closing(*coop_run(3))
    assert "read at 3 of 4 steps; 1,234 were not read, since the device had not finished earlier readings" in closing(
        *coop_run(3), behind
    )


def test_each_part_of_the_overhead_has_its_reason() -> None:
    first = ev.Progress(1.0, 1, 1, 1, 0, (1,), (), 0.5, 1, 1)
    time = (ev.PhaseTime(Phase.FORWARD, 2.0, 100),)
    rest = ev.Progress(9.0, 101, 100, 100, 0, (100,), time, 0.26, 1, 1, exempt_steps=15, exempt_seconds=0.2)
    rest = dataclasses.replace(rest, paid_steps=1, paid_seconds=0.01)
    lines = closing(started(), first, rest).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("overhead"))
    assert lines[begin : begin + 3] == [
        "overhead 2.60 ms a step, 13.0 %",
        "of these 0.5 % for samples within the budget; 10.0 % for samples to which the budget does not apply: the first steps, "
        "those after a change, and one in some thousand (15 of 100 steps); 2.5 % for the hooks and readings of every step, "
        "which have no budget",
        "set-up took 500 ms, once: finding the models, and the first step",
    ]


def test_memory_of_device_is_told_with_its_parts() -> None:
    assert "device memory" not in closing(*coop_run(5))
    shown = closing(*coop_run(5), device_sample())
    mine = "context 1.71 GiB + cached 3.20 GiB + rounding 100.00 MiB + requested 9.00 GiB"
    assert f"device memory of this process, at the last reading: 14.00 GiB = {mine}" in shown
    hidden = closing(*coop_run(5), device_sample(process=None))
    assert "device memory of all processes, at the last reading: 15.00 GiB = outside 2.71 GiB + cached" in hidden
    alone = dataclasses.replace(device_sample(process=None), device_used=None)
    assert "of torch's allocator, at the last reading: context unknown + cached 3.20 GiB" in closing(
        *coop_run(5), alone
    )


def test_closing_lines_name_models_and_backward_ends() -> None:
    found = coop_model()
    ctx = next(info for info in found.parameters if info.path == "ctx")
    rest = sum(info.count for info in found.parameters) - ctx.count
    later = dataclasses.replace(found, models=(dataclasses.replace(found.models[0], name="student", number=9),))
    text = closing(*coop_run(3))
    assert f"model CoOp: {ctx.count:,} trainable, {rest:,} frozen, {ctx.bytes / 1024:.2f} KiB gradients" in text
    assert "backward stops at ctx: " in text
    both = [line.partition(":")[0] for line in closing(*coop_run(3), later).splitlines() if line.startswith("model ")]
    assert both == ["model CoOp", "model student (CoOp)"]


def test_closing_lines_name_last_of_many_models() -> None:
    run = coop_run(3)
    found, measured = coop_model(), [e for e in run if isinstance(e, ev.GradientFlowMeasured)]
    many = [
        event
        for number in range(1, 13)
        for event in (
            dataclasses.replace(found, models=(dataclasses.replace(found.models[0], number=number),)),
            *measured,
        )
    ]
    lines = closing(*run, *many).splitlines()
    # Twelve, and the run's own first one.
    assert "5 earlier models are not listed" in lines
    assert sum(line.startswith("model ") for line in lines) == 8


def test_phase_shares_leave_out_imports() -> None:
    times = tuple(
        ev.PhaseTime(phase, seconds, 4)
        for phase, seconds in ((Phase.LOAD, 60.0), (Phase.DATA, 8.7), (Phase.FORWARD, 1.3))
    )
    text = closing(started(), ev.Progress(1.0, 4, 1, 1, 0, (1,), times, 0.0, 1, 1))
    shares = {
        line.split()[0]: line.split()[3:4] for line in text.splitlines() if " s " in line and line.startswith("  ")
    }
    assert shares == {"load": [], "data": ["87.0"], "forward": ["13.0"]}


def test_device_phases_name_their_clock() -> None:
    times = (ev.PhaseTime(Phase.FORWARD, 2.0, 4),)
    steps = [ev.Progress(step, step, 1, 1, 0, (1,), times, 0.0, 1, 1, own_device_seconds=0.001) for step in (1, 2)]
    on_cpu = closing(dataclasses.replace(started(), device="cpu"), *steps)
    assert "host time:" not in on_cpu
    assert "device time of a phase" not in on_cpu
    moved = ev.DeviceFound(0.0, 0, "NVIDIA H100", "CUDA allocator")
    untimed = closing(started(), moved, *steps)
    assert "these seconds are host time: the device runs operations after the host has launched them" in untimed
    assert "device time of a phase" not in untimed
    timed = [
        ev.DeviceTimesMeasured(1.0, step, ((Phase.FORWARD, took), (Phase.BACKWARD, 2 * took)), 0.0)
        for step, took in ((1, 0.002), (2, 0.004))
    ]
    text = closing(started(), moved, *steps, *timed)
    assert "device time of a phase, idle time included, mean of 2 steps: forward 3.00 ms, backward 6.00 ms" in text
    assert "(host time, or device time where that is longer)" in text
