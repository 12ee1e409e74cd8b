"""Steps whose loss or gradient norm is far above that of the steps before."""

from __future__ import annotations

from typing import Literal

from gradtui.dataclass import dataclass
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.measurements import Event

SpikeMetric = Literal["loss", "norm"]


@dataclass(frozen=True, slots=True)
class SpikeFound(Event):
    """The loss or the gradient norm of `step` was far above the usual one (`spike_fence.py` has the rule)."""

    number: int
    """The number of this spike in the run, from 1. After the first ones only some are emitted."""
    metric: SpikeMetric
    """`loss`: that of one backward; `norm`: that of the gradients of the step, before the script clips them."""
    value: float
    usual: float
    """The median of the values before it."""
    limit: float
    """The value above which it is a spike."""
    batches: tuple[NamedBatch, ...] = ()
    """The batch, where a DataLoader yielded it; several where several DataLoaders yielded parts of it."""
    micro_step: int = 1
    """With `loss`: which backward of the step it was, from 1."""
    clipped_at: float | None = None
    """With `norm`: the maximum that the script clips to; None if it does not clip."""
    back_at: int | None = None
    """The first later step whose value was no spike; None while there was none."""
    stays: bool = False
    """The values after it have stayed as high, and are the usual ones now."""


@dataclass(frozen=True, slots=True)
class SpikeSettled(Event):
    """The values after a spike are usual ones again, or have stayed as high."""

    number: int
    """As in `SpikeFound`."""
    back_at: int | None
    """As in `SpikeFound`; None where they have stayed."""
