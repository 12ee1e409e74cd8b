"""Estimate the seconds of a step with a change from the measured time of each module. Any thread.

The planner knows the work of each module with and without the change (`work_of`), and the probe its time. Times of work that is
there now follow from these:

* Backward of a module takes its measured time, times the share of its work that is left.
* Where backward does not run now, its work takes as long as the module's forward does for the same, times the ratio of both in
  the modules that have a backward.
* What a checkpoint computes again takes the time of the forward, and `torch.utils.checkpoint` takes some time itself.
* The optimizer's time goes with the number and the bytes of the parameters that get a gradient.

The rest of the step stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from gradtui.planner.replay import Replayed
from gradtui.planner.work import Work
from gradtui.protocol.forecasts import ForecastAsked, MeasuredTimes, TimeForecast
from gradtui.protocol.operations import OperationsRecorded

_LEFT_OUT, _IN_PART, _NEW, _AGAIN, _OPTIMIZER, _STEP = 0.15, 0.3, 0.4, 0.3, 0.3, 0.04
"""The margins, as shares: of a backward that is left out, or of which a part is left, or that is new; of what is computed
again; of a change of the optimizer's time; of the step itself, whose duration varies."""
_CHECKPOINTING = 0.5
_OF_REGION, _OF_REPETITION, _OF_OPERATION = 13, 25, 1.5
"""What `torch.utils.checkpoint` takes for a call, for its repetition in backward, and for each operation in that, in multiples
of the shortest operation of a forward."""
_SHORT_S = 2e-6, 15e-6
"""No operation is taken to be shorter or longer."""
_TENSOR_BYTES = 1 << 16
"""An optimizer takes as long for a tensor, whatever its size, as for so many bytes of it."""
_STEP_BYTES = 3 * _TENSOR_BYTES
"""And for a step without tensors: between 2 (AdamW) and 17 tensors (SGD without momentum) on one core."""


def time_with(asked: ForecastAsked, now: Replayed, after: Replayed) -> TimeForecast | None:
    """Return the duration of a step with the change that was asked about; None if the times say nothing of it.

    Args:
        asked: the question, with the measured times.
        now: what autograd does without the change.
        after: what it does with it.
    """
    times = asked.times
    if times is None or not sum(times.forward):
        return None
    before, then = (_by_module(asked.operations, each) for each in (now, after))
    ratio = _ratio(times, before)
    change = margin = 0.0
    for module in before.keys() | then.keys():
        had, has = before.get(module, Work()), then.get(module, Work())
        if had == has or not 0 <= module < len(times.forward):
            continue
        difference, error = _difference(times.forward[module], times.backward[module], had, has, ratio)
        change += difference
        margin += error
    checkpoints = _checkpointing(asked.operations, times, after) - _checkpointing(asked.operations, times, now)
    change += checkpoints
    margin += _CHECKPOINTING * abs(checkpoints)
    weights = [_weight(asked.sizes, reached) for reached in (now.reached, after.reached)]
    if weights[0]:
        optimizer = times.optimizer * (weights[1] / weights[0] - 1)
        change += optimizer
        margin += _OPTIMIZER * abs(optimizer)
    least = sum(times.forward)
    seconds = max(times.step + change, min(least, times.step))
    return TimeForecast(times.step, seconds, margin + _STEP * times.step)


def _by_module(recorded: OperationsRecorded, replayed: Replayed) -> dict[int, Work]:
    found: dict[int, Work] = {}
    for call, work in replayed.work_by_call.items():
        module = recorded.calls[call].module if call >= 0 else -1
        found[module] = found.get(module, Work()).plus(work)
    return found


def _ratio(times: MeasuredTimes, before: Mapping[int, Work]) -> float:
    """Return how long work takes in backward, divided by how long it takes in forward.

    As long as only a part of the modules has a backward, that says little of the others: they count as if it took as long.
    """
    backward = expected = sum(times.forward)
    for module, work in before.items():
        if 0 <= module < len(times.forward) and work.forward and work.backward and times.backward[module]:
            forward = times.forward[module] / work.forward
            backward += max(0.0, times.backward[module] - forward * work.again)
            expected += forward * work.backward
    return backward / expected


def _difference(forward: float, backward: float, had: Work, has: Work, ratio: float) -> tuple[float, float]:
    """Return the seconds by which a module takes longer, and the margin of that."""
    rate = forward / had.forward if had.forward else 0.0
    record = rate * (has.forward - had.forward)
    again = rate * (has.again - had.again)
    measured = max(0.0, backward - rate * had.again)
    if had.backward and measured:
        change = measured * (has.backward / had.backward - 1)
        share = _LEFT_OUT if not has.backward else _IN_PART
    else:
        change, share = ratio * rate * (has.backward - had.backward), _NEW
    return record + change + again, _NEW * abs(record) + share * abs(change) + _AGAIN * abs(again)


def _checkpointing(recorded: OperationsRecorded, times: MeasuredTimes, replayed: Replayed) -> float:
    """Return what checkpointing takes besides the operations that it repeats: Python code, in multiples of short operations."""
    if not replayed.regions:
        return 0.0
    counts = Counter(operation.module for operation in recorded.operations if operation.name)
    known = [times.forward[module] / count for module, count in counts.items() if 0 <= module < len(times.forward)]
    shortest = min((each for each in known if each), default=_SHORT_S[0])
    shortest = min(max(shortest, _SHORT_S[0]), _SHORT_S[1])
    of_calls = _OF_REGION * replayed.regions + _OF_REPETITION * replayed.repeated
    return shortest * (of_calls + _OF_OPERATION * replayed.repeated_operations)


def _weight(sizes: Sequence[int], reached: Collection[int]) -> int:
    return _STEP_BYTES + sum(_TENSOR_BYTES + sizes[index] for index in reached) if reached else 0
