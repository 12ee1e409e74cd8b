"""The time left of the run or of its epoch, where it is known. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.run_state import RunState

if TYPE_CHECKING:
    from gradtui.transport.progress_bars import ProgressBar

_OF_EPOCH = re.compile(r"epochs?\W*\d", re.IGNORECASE)
_NOT_TRAINING = re.compile(
    r"\b(val|valid|validation|validating|eval|evaluating|evaluation|test|testing)", re.IGNORECASE
)


_MIN_EPOCH_S = 10.0
"""The time left of an epoch that takes less would change all the time, and be gone between two epochs."""


@dataclass(frozen=True)
class TimeLeft:
    """An estimate of the time left.

    Attributes:
        seconds: how long.
        is_of_epoch: whether it is that of the present epoch rather than of the run.
    """

    seconds: float
    is_of_epoch: bool = False


def time_left(state: RunState, bars: Sequence[ProgressBar] = ()) -> TimeLeft | None:
    """Return the time left, None if it is unknown.

    The steps of `--steps` come first, then a progress bar over the whole run, then the steps that the script is going to make,
    then the epoch's steps, then a bar over an epoch.
    Steps take the time of the recent ones. Of an epoch of a few seconds nothing is said.

    Args:
        state: the state of the run.
        bars: the progress bars of the script's output, the outermost first.
    """
    if state.ended is not None:
        return None
    stop_after = state.started.stop_after if state.started is not None else None
    of_run = _time_of(state, None if stop_after is None else max(0, stop_after - state.step))
    if of_run is not None:
        return TimeLeft(of_run)
    training = [bar for bar in bars if not _NOT_TRAINING.search(bar.name)]
    if len(bars) == 1 and state.phase is Phase.EVAL:
        training = []  # a bar without a name may be that of the evaluation
    outer = training[0] if training else None
    of_epoch = outer is not None and (outer.total == state.epoch_steps or _OF_EPOCH.search(outer.name) is not None)
    if outer is not None and not of_epoch:
        return TimeLeft(outer.seconds_left)
    length = state.throughput.length
    # Where the script goes on longer than it was to, nothing is known.
    if length is not None and length.steps is not None and length.steps > state.step:
        of_run = _time_of(state, length.steps - state.step)
        if of_run is not None:
            return TimeLeft(of_run)
    of_steps, whole = _time_of(state, state.epoch_steps_left), _time_of(state, state.epoch_steps)
    if of_steps is None and outer is not None:
        of_steps, whole = outer.seconds_left, outer.seconds
    is_short = whole is not None and whole < _MIN_EPOCH_S
    return TimeLeft(of_steps, is_of_epoch=True) if of_steps is not None and not is_short else None


def _time_of(state: RunState, steps: int | None) -> float | None:
    """Return the seconds that a number of steps takes at the recent rate, None if that is unknown."""
    rate = state.steps_per_second
    return steps / rate if steps is not None and rate is not None and rate > 0 and math.isfinite(steps / rate) else None
