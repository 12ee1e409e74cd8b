"""Keep what is known of the samples of steps, and of their work. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState


def _samples_measured(state: RunState, event: ev.SamplesMeasured) -> None:
    state.throughput.samples = event


def _run_length_found(state: RunState, event: ev.RunLengthFound) -> None:
    state.throughput.length = event


CHANGES: dict[type[ev.Event], Callable[[RunState, Any], None]] = {
    ev.SamplesMeasured: _samples_measured,
    ev.RunLengthFound: _run_length_found,
}
