"""Count steps, the time of phases, and what gradtui itself takes. Pure."""

from __future__ import annotations

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState

_SMOOTHING = 0.3
"""Weight of the newest sample in the moving averages of the header (rate, cost)."""


def progressed(state: RunState, event: ev.Progress) -> None:
    state.micro_steps += event.micro_steps
    state.skipped_steps += event.skipped_steps
    state.epoch_steps, state.epoch_steps_left = event.epoch_steps, event.epoch_steps_left
    state.iterations = event.iterations if event.iterations != event.step else None
    state.optimizer_steps += [0] * (len(event.optimizer_steps) - len(state.optimizer_steps))
    for index, steps in enumerate(event.optimizer_steps):
        state.optimizer_steps[index] += steps
    elapsed = 0.0
    for time in event.phases:
        record = state.phases[time.phase]
        record.seconds += time.seconds
        record.count += time.count
        elapsed += time.seconds
    cost = state.cost
    cost.norms_every, cost.ledger_every = event.norms_every, event.ledger_every
    _readings(state, event)
    if event.own_device_seconds:
        cost.own_device_seconds = (cost.own_device_seconds or 0.0) + event.own_device_seconds
    if event.step <= event.steps:
        cost.setup_seconds += event.own_seconds
        return
    own, elapsed = event.own_seconds - event.listing_seconds, elapsed - event.listing_seconds
    cost.setup_seconds += event.listing_seconds
    cost.own_seconds += own
    cost.steps += event.steps
    cost.step_seconds += elapsed
    cost.exempt_steps += event.exempt_steps
    cost.exempt_seconds += event.exempt_seconds
    cost.paid_steps += event.paid_steps
    cost.paid_seconds += event.paid_seconds
    cost.unended_seconds += elapsed
    cost.unended_own_seconds += own
    if not event.steps:
        return
    if cost.unended_seconds > 0:
        state.throughput.rates.append(event.step, event.steps / cost.unended_seconds)
        newest = (float(event.steps), cost.unended_seconds, cost.unended_own_seconds)
        smoothed = (old + _SMOOTHING * (new - old) for old, new in zip(cost.lately or newest, newest))
        cost.lately = tuple(smoothed)  # type: ignore[assignment]  # three of them
        count, seconds, own_seconds = cost.lately or newest
        state.steps_per_second = count / seconds
        cost.recent_share = own_seconds / seconds
    cost.unended_seconds = cost.unended_own_seconds = 0.0


def _readings(state: RunState, event: ev.Progress) -> None:
    if event.steps_without_loss and not state.steps_without_loss:
        state.note(event, "probe", "losses are unknown from here on: a CUDA graph computes them")
    state.steps_without_loss = event.steps_without_loss
    cost = state.cost
    without_room = event.readings_without_room
    late = event.readings_dropped - without_room
    if late and not cost.readings_late:
        state.note(
            event, "probe", "gradients not measured: the device is too far behind, and training does not wait for it"
        )
    if without_room and not cost.readings_without_room:
        state.note(event, "probe", "gradients not measured: the device has no memory left that the script may not need")
    cost.readings_late, cost.readings_without_room = late, without_room
