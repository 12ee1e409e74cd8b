"""Rows of the rules of what a loop spends its time on, besides learning: GT701 to GT712."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.fakes import Node, device_sample, found
from helpers.jobs import Job
from helpers.rule_rows import Row, Table, quiet, reports
from helpers.scripted_runs import run, then
from helpers.timed_runs import (
    BETWEEN_STEPS,
    FAST,
    FINE,
    HOST,
    HOT,
    OWN,
    SLOW,
    SMALL,
    STRANGE,
    grown,
    on_host,
    sampled,
    timed_ranks,
    with_code_between,
    with_operations,
)
from helpers.timed_steps import counted, times

from gradtui.protocol import events as ev
from gradtui.protocol.events import HostLoad, Throttling
from gradtui.protocol.step_operations import OperationsCounted
from gradtui.protocol.step_times import StepPart, StepTimesMeasured
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def timed(measured: StepTimesMeasured, *, epoch: int | None = None) -> RunState:
    """A run with these steps; an epoch has so many."""
    state = then(run(), measured)
    state.epoch_steps = epoch
    return state


def crowded(held_up: float) -> list[ev.DeviceSampled]:
    """Samples of a process on the host alone that waited for a core for this share of the time."""
    usual = replace(device_sample(), condition=None, utilisation=None, host=replace(HOST, held_up=held_up), index=None)
    return [replace(usual, at=10.0 + second) for second in range(10)]


def late_batches() -> RunState:
    """A run with two workers, whose median batch comes at once, and one of twenty after 400 ms."""
    measured = times(wait=50, backward=20, workers=2)
    wait, *others = measured.parts
    return timed(replace(measured, parts=(replace(wait, median=0.0001, p95=0.4), *others)))


def few_long_waits() -> RunState:
    """A run whose usual batch comes at once; a few of them wait long."""
    measured = times(wait=26, backward=1)
    wait, *others = measured.parts
    return timed(replace(measured, parts=(replace(wait, median=0.0002, p95=0.0003), *others)))


def several_batches() -> RunState:
    """A run of four batches a step."""
    state = timed(times(wait=58, backward=10))
    state.step, state.micro_steps = 100, 400
    return state


def grown_together() -> StepTimesMeasured:
    """Steps whose forward and backward become three times as long."""
    measured = grown(StepPart.FORWARD, 3.0)
    parts = (
        replace(each, late_median=3.0 * (each.early_median or 0.0)) if each.part is StepPart.BACKWARD else each
        for each in measured.parts
    )
    return replace(measured, parts=tuple(parts))


def slow_optimizer(**settings: bool) -> RunState:
    """A run whose optimizer takes most of its time, with these settings."""
    group = GroupSettings(0.01, 0.0, tuple(settings.items()))
    return then(timed(times(optimizer=60, backward=40)), ev.GroupsRead(0.1, 1, ((group,),)))


def of_types(wide: str, head: str, *, rows: int = 30) -> RunState:
    """A run of two weights of these types, one of `rows` times 40 elements, and one of a third of that."""
    model = found(
        Node(
            "Net",
            "Net",
            (),
            (Node("wide", "Linear", (("weight", (rows, 40)),)), Node("head", "Linear", (("weight", (10, 40)),))),
        )
    )
    parameters = (replace(each, dtype=name) for each, name in zip(model.parameters, (wide, head)))
    return run("TT", "11", owned=(0, 1), model=replace(model, parameters=tuple(parameters)))


MANY = counted(forward=1_200, graph=900)
AGENT = replace(counted(steps=4, forward=1_200, graph=900), calls=4 * 60)
"""A model that is called 60 times a step."""
READS = counted(other=3_000, reads=1_000)
WAITS = counted(other=20, reads=1, waited=12)


def without_nvml(idle_ends: int) -> RunState:
    """A run whose device has no utilisation, and was idle at the end of so many of twelve parts of steps."""
    sample = replace(device_sample(), utilisation=None, index=0)
    return then(with_operations(SMALL, MANY), sample, ev.DeviceTimesMeasured(1.0, 4, (), 0.0, 12, idle_ends))


UNREMARKABLE = {
    "each part has its time": times(wait=30, prepare=5, forward=20, backward=30, optimizer=10, other=5),
    # What its parts cost at least is most of its steps.
    "a toy that waits": times(steps=5_000, unsampled=5_000, wait=0.4, forward=0.1, backward=0.2),
    "a toy with an optimizer": times(steps=5_000, unsampled=5_000, optimizer=0.4, forward=0.1, backward=0.2),
    "few steps": times(steps=15, unsampled=12, wait=50, backward=5),
    "the forward of a teacher": times(evaluation=45, with_evaluation=100, backward=55),
}
"""Steps of which no rule says anything."""
FEW_OR_LONG: dict[str, tuple[StepTimesMeasured, OperationsCounted]] = {
    "few operations": (SMALL, counted(forward=200, graph=150)),
    "few operations in own code": (OWN, counted(other=40, reads=1)),
    # Python code that takes long, and long operations, are not the operations' time.
    "slow own code": (OWN, counted(other=200, reads=1)),
    "long operations": (OWN, counted(other=2_000, large=60)),
    "five steps": (replace(SMALL, steps=5, unsampled_steps=5), MANY),
}


def usual() -> tuple[Row, ...]:
    """The rows that all rules of parts of steps have."""
    return (
        *(quiet(case, lambda measured=measured: timed(measured)) for case, measured in UNREMARKABLE.items()),
        quiet("no steps", run, lacked="fewer than ten steps were timed"),
    )


def few_or_long() -> tuple[Row, ...]:
    """The rows that both rules of operations have."""
    return (
        *(
            quiet(case, lambda measured=measured, counts=counts: with_operations(measured, counts))
            for case, (measured, counts) in FEW_OR_LONG.items()
        ),
        quiet("no counts", lambda: timed(SMALL), lacked="the operations of no step were counted"),
        quiet("no steps", run, lacked="fewer than ten steps were timed"),
    )


TEN_SECONDS = {"loop_seconds": pytest.approx(10.0)}

ROWS: Table = {
    "GT701": (
        reports(
            "the main process loads", lambda: timed(times(wait=58, forward=3, backward=5.7)),
            numbers={"seconds_a_step": pytest.approx(0.058)}, is_exact=True,
        ),
        reports(
            "an epoch of a thousand steps", lambda: timed(times(wait=58, backward=10), epoch=1_000),
            numbers={"seconds_an_epoch": pytest.approx(58.0)},
        ),
        reports("some batches come late", late_batches, numbers={"num_workers": 2}),
        reports("a few long waits", few_long_waits, numbers={"num_workers": 0}),
        reports(
            "on a busy machine",
            lambda: then(timed(times(wait=58, backward=10)), *crowded(0.3)), numbers={"seconds_a_step": pytest.approx(0.058)},
        ),
        quiet("other processes have the cores", lambda: then(timed(times(wait=58, backward=10)), *crowded(0.9))),
        reports("several batches a step", several_batches, numbers={"seconds_a_step": pytest.approx(0.058)}),
        *usual(),
    ),
    "GT702": (
        reports("reads value by value", lambda: with_operations(OWN, READS), key="values", silent=("GT703",)),
        reports("a read waits for an idle device", lambda: with_operations(OWN, WAITS, 0.4), key="waits"),
        quiet("a read waits for a busy device", lambda: with_operations(OWN, WAITS, 0.95)),
        quiet("a read hardly waits", lambda: with_operations(OWN, counted(other=20, reads=1, waited=0.1), 0.4)),
        quiet("many operations without a read", lambda: with_operations(SMALL, MANY)),
        *few_or_long(),
    ),
    "GT703": (
        reports("many operations", lambda: with_operations(SMALL, MANY), explains=frozenset(), level=None),
        reports(
            # Its samples come one by one.
            "an agent that acts on what it reads",
            lambda: with_operations(SMALL, replace(AGENT, reads_of_results=4 * 60)), level=Level.NOTE,
        ),
        reports("a model that is called often", lambda: with_operations(SMALL, AGENT), level=None),
        reports(
            "own code of many operations", lambda: with_operations(OWN, counted(other=4_000)), explains={"GT710"}
        ),
        reports("operations of forward and backward", lambda: with_operations(BETWEEN_STEPS, STRANGE)),
        quiet("code between operations", with_code_between),
        reports("an idle device", lambda: with_operations(SMALL, MANY, 0.3)),
        quiet("a device that computes meanwhile", lambda: with_operations(SMALL, MANY, 0.9)),
        reports("idle at most ends, without NVML", lambda: without_nvml(11)),
        quiet("idle at few ends, without NVML", lambda: without_nvml(3)),
        *few_or_long(),
    ),
    "GT704": (
        reports(
            "three steps with an evaluation", lambda: timed(times(evaluation=45, with_evaluation=3, backward=55)),
            numbers=TEN_SECONDS,
        ),
        reports(
            "a validation in each step",
            lambda: timed(replace(times(evaluation=45, with_evaluation=100, backward=55), steps_with_validation=100)),
            numbers=TEN_SECONDS,
        ),
        *usual(),
    ),
    "GT705": (
        reports("a quarter of the loop", lambda: timed(times(saving=25, backward=75)), numbers=TEN_SECONDS),
        *usual(),
    ),
    "GT706": (
        reports(
            "more than half of the loop", lambda: timed(times(optimizer=60, backward=40)),
            numbers=TEN_SECONDS, level=Level.NOTE,
        ),
        reports("it was told to be slow", lambda: slow_optimizer(foreach=False), level=None),
        reports("it is fused", lambda: slow_optimizer(foreach=False, fused=True), level=Level.NOTE),
        *usual(),
    ),
    "GT707": (
        reports(
            "own code grows", lambda: timed(grown(StepPart.OTHER, 10.0)),
            level=None, numbers={"seconds_at_first": 0.01, "seconds_now": 0.046},
        ),
        reports("forward grows", lambda: timed(grown(StepPart.FORWARD, 10.0)), level=Level.NOTE),
        reports(
            # 3 + 3 + 4 milliseconds become 9 + 9 + 4.
            "forward and backward grow together", lambda: timed(grown_together()),
            numbers={"seconds_at_first": 0.01, "seconds_now": 0.022, "part": "forward"},
        ),
        quiet(
            "other processes hold the cores",
            lambda: then(timed(grown(StepPart.OTHER, 10.0)), *crowded(0.3)),
            lacked="other processes had the cores for 30 % of the time",
        ),
        quiet("the machine becomes slower", lambda: timed(grown(StepPart.OTHER, 3.0, others=3.0))),
        quiet("a part hardly grows", lambda: timed(grown(StepPart.OTHER, 1.3))),
        quiet("a part becomes shorter", lambda: timed(grown(StepPart.OTHER, 0.1))),
        *usual(),
    ),
    "GT708": (
        reports(
            "slow data", lambda: timed_ranks(FAST, SLOW, FAST),
            numbers={"rank": 1, "part": "wait", "seconds_a_step": pytest.approx(0.023)},
        ),
        reports(
            "a slow forward of replicas",
            lambda: timed_ranks(times(forward=30, backward=10), times(forward=10, backward=30)),
            numbers={"rank": 0, "part": "forward"},
        ),
        reports(
            "own code that averages gradients",
            lambda: timed_ranks(
                times(forward=10, backward=10, other=20), times(forward=10, backward=29, other=1), replicas=False
            ),
            numbers={"rank": 1},
        ),
        quiet("equal ranks", lambda: timed_ranks(FAST, FAST)),
        quiet("a little slower", lambda: timed_ranks(times(wait=3, backward=37), times(wait=5, backward=35))),
        quiet(
            "ranks that do not wait for each other",
            lambda: timed_ranks(times(wait=40, backward=10), times(wait=1, backward=10)),
        ),
        quiet("one process", run, lacked="the run is one process"),
        quiet("no steps", lambda: Job(2).state, lacked="fewer than ten steps of two ranks were timed"),
    ),
    "GT709": (
        reports(
            "too hot", lambda: sampled(*[HOT] * 12, *[FINE] * 8), level=None,
            evidence={"reason": "heat", "seconds": 12.0, "clock": 0.5, "temperature": 87},
        ),
        *(
            reports(
                f"slowed down by {reason.value}",
                lambda reason=reason: sampled(*[replace(HOT, throttling=(reason,))] * 10), level=level,
            )
            for reason, level in (
                (Throttling.POWER_BRAKE, None), (Throttling.SLOWDOWN, None), (Throttling.POWER_CAP, Level.NOTE),
            )
        ),
        quiet("as it should be", lambda: sampled(*[FINE] * 20)),
        quiet("hot for a part of the time", lambda: sampled(*[HOT] * 3, *[FINE] * 20)),
        quiet("hot for four seconds", lambda: sampled(*[HOT] * 4)),
        quiet(
            # Under full load, at nearly its full clock.
            "at its power limit",
            lambda: sampled(*[replace(FINE, clock=1_800, throttling=(Throttling.POWER_CAP,))] * 20),
        ),
        # The clock of a device that computes nothing says nothing.
        quiet("an idle device", lambda: sampled(*[HOT] * 20, utilisation=0.0)),
        reports(
            "a process that is swapped out", lambda: on_host(HostLoad(0.3, 4, 340.0, 9e6, 1 << 30)),
            evidence={"page_faults": 340.0, "swapped_bytes": 1 << 30}, level=None,
        ),
        # Pages of files that are read for the first time, as of a data set in memory maps.
        quiet("pages of files", lambda: on_host(HostLoad(0.3, 4, 340.0, 0.0, 1 << 30))),
        reports(
            "more threads than cores", lambda: on_host(HOST, threads=64),
            level=Level.NOTE, evidence={"threads": 64, "cores": 16},
        ),
        quiet("as many threads as cores", lambda: on_host(HOST, threads=16)),
        quiet("no samples", run, lacked="the device was not read while the run trained"),
    ),
    "GT710": (
        reports("own code", lambda: timed(times(other=60, backward=40)), key="other", numbers=TEN_SECONDS),
        reports("code before forward", lambda: timed(times(prepare=60, backward=40)), key="prepare", numbers=TEN_SECONDS),
        reports("code between operations", with_code_between, key="between"),
        quiet("own code waits for a busy device", lambda: with_operations(OWN, WAITS, 0.95)),
        *usual(),
    ),
    "GT711": (
        reports(
            "anomaly detection", lambda: timed(replace(times(backward=40), anomaly_detection=True)),
            evidence={"anomaly_detection": True}, is_exact=True,
        ),
        quiet("no anomaly detection", lambda: timed(times(backward=40))),
    ),
    "GT712": (
        reports(
            "all of it", lambda: of_types("float64", "float64"), paths=("wide.weight", "head.weight"),
            evidence={"elements": 1_600, "trained_elements": 1_600, "tensors": 2}, is_exact=True,
        ),
        reports("the larger part", lambda: of_types("float64", "float32"), numbers={"elements": 1_200}),
        quiet("the smaller part", lambda: of_types("float32", "float64")),
        quiet("a small model", lambda: of_types("float64", "float64", rows=10)),
        quiet("float32", lambda: of_types("float32", "float32")),
    ),
}  # fmt: skip
