"""States of runs whose steps were timed, whose operations were counted, or whose device and host were read."""

from __future__ import annotations

from dataclasses import replace

from gradtui.protocol.events import DeviceCondition, HostLoad, RankEvent, Throttling
from gradtui.protocol.step_operations import OperationsCounted
from gradtui.protocol.step_times import PartTime, StepPart, StepTimesMeasured
from gradtui.run.state.run_state import RunState
from helpers.fakes import device_sample
from helpers.jobs import Job
from helpers.scripted_runs import run, then
from helpers.timed_steps import counted, times

SMALL = times(forward=8, backward=8, optimizer=1, other=1, steps=200, unsampled=180)
"""Steps that may be of small operations."""
OWN = times(forward=1, backward=1, other=18, steps=200, unsampled=180)
"""Steps of own code."""
FAST = times(wait=1, forward=5, backward=34, other=1)
SLOW = times(wait=24, forward=5, backward=11, other=1)
"""The steps of a rank that waits in backward, and of the one that it waits for."""
HOT = DeviceCondition(87, 412.0, 700.0, 990, 1_980, (Throttling.HEAT,))
FINE = DeviceCondition(60, 500.0, 700.0, 1_980, 1_980)
HOST = HostLoad(1.0, 16, 0.0, 0.0, 0)
"""A host of 16 cores, one of which is busy."""


def grown(part: StepPart, by: float, *, others: float = 1.0) -> StepTimesMeasured:
    """Steps of ten milliseconds, in which one part is longer by a factor at the end, and the others by another."""
    measured = times(forward=3, backward=3, other=4)

    def at_end(each: PartTime) -> PartTime:
        assert each.early_median is not None
        return replace(each, late_median=each.early_median * (by if each.part is part else others))

    return replace(measured, parts=tuple(map(at_end, measured.parts)))


def with_operations(
    measured: StepTimesMeasured, operations: OperationsCounted, utilisation: float | None = None
) -> RunState:
    """A run with these steps and operations; its device is busy for this part of the time, 0 to 1."""
    state = then(run(), measured, operations)
    seconds = range(5 if utilisation is not None else 0)
    return then(state, *(replace(device_sample(10.0 + each), utilisation=utilisation, index=0) for each in seconds))


BETWEEN_STEPS = times(forward=8, backward=2, optimizer=1, other=1, steps=200, unsampled=180)
STRANGE = counted(forward=600, graph=400)
"""Operations that are more than half of the loop, unless code between them takes a part of it."""


def with_code_between() -> RunState:
    """A run in which an environment takes five of the eight milliseconds of forward."""
    parts = (
        replace(each, between_seconds=each.small_seconds * 5 / 3) if each.part is StepPart.FORWARD else each
        for each in STRANGE.parts
    )
    return with_operations(BETWEEN_STEPS, replace(STRANGE, parts=tuple(parts)))


def timed_ranks(*ranks: StepTimesMeasured, replicas: bool = True) -> RunState:
    """A job whose ranks have these steps."""
    state = Job(len(ranks)).state
    assert state.job is not None
    state.job.has_replicas = replicas
    return then(state, *(RankEvent(1.0, 100, rank, 0, measured) for rank, measured in enumerate(ranks)))


def sampled(*conditions: DeviceCondition, utilisation: float = 0.9) -> RunState:
    """A run with a sample of its device each second."""
    each = enumerate((FINE, *conditions))
    return then(
        run(),
        *(
            replace(device_sample(10.0 + second), condition=condition, utilisation=utilisation, host=None, index=0)
            for second, condition in each
        ),
    )


def on_host(host: HostLoad, threads: int = 4) -> RunState:
    """A run on the host alone, which was read for ten seconds, with so many threads of torch."""
    samples = (
        replace(device_sample(10.0 + second), condition=None, utilisation=None, host=host, index=None)
        for second in range(10)
    )
    return then(run(), replace(times(forward=40, backward=60), threads=threads), *samples)
