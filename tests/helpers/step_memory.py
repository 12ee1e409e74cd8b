"""Runs whose memory is read at every step, some with a spike: events with computed totals."""

from __future__ import annotations

from collections.abc import Mapping

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState
from helpers.fakes import MIB, coop_run
from helpers.states import state_after

BEFORE = MIB
"""Bytes in no category at the end of `load` in `coop_run`."""
USUAL = 101 * MIB
"""The median of the peaks."""


def totals(step: int, more: int = 0, *, exact: bool = False) -> ev.StepTotals:
    """The totals of a step: they vary a little. `more` bytes are kept for backward."""
    forward, backward = (100 + step % 3) * MIB + more, 90 * MIB
    return ev.StepTotals(step, forward, backward, 80 * MIB, forward + (5 * MIB if exact else 0), exact)


def spike(step: int, more: int, number: int = 1, *, steps: int = 1) -> ev.MemorySpikeFound:
    """The event of a spike in forward."""
    return ev.MemorySpikeFound(step / 10, step, Phase.FORWARD, totals(step, more).peak or 0, USUAL, number, steps)


def events(steps: int = 60, spikes: Mapping[int, int] | None = None, *, exact: bool = False) -> list[ev.Event]:
    """Return a CoOp-like run of which every step is read. `spikes` has the bytes more, by step."""
    found, run = spikes or {}, coop_run(steps)
    run.append(
        ev.StepMemoryMeasured(
            steps / 10, steps, tuple(totals(step, found.get(step, 0), exact=exact) for step in range(1, steps + 1))
        )
    )
    return run + [spike(step, more, number) for number, (step, more) in enumerate(found.items(), 1)]


def state(steps: int = 60, spikes: Mapping[int, int] | None = None, *, exact: bool = False) -> RunState:
    """Return the state after `events`."""
    return state_after(*events(steps, spikes, exact=exact))
