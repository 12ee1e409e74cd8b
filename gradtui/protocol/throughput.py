"""How much the steps of training process. `gradtui.protocol.events` exports all of this."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement


@dataclass(frozen=True, slots=True)
class SamplesMeasured(Measurement):
    """The samples of the batches that training has used. It replaces the event before it."""

    samples: int
    """In all steps so far; 0 if they are not known any more."""
    steps: int
    recent_samples: float
    """In the newest steps."""
    recent_steps: int
    is_counted: bool
    """Whether each batch was counted as a DataLoader drew it. Otherwise the inputs of the models in sampled steps stand for
    those of all steps."""
    has_one_size: bool
    """Whether all of these inputs have the same number of samples, and of tokens."""
    tokens_a_sample: float | None
    """In these inputs; None where they are no sequences of integers."""


@dataclass(frozen=True, slots=True)
class RunLengthFound(Measurement):
    """How many steps the script is going to make, as far as that can be told. It replaces the event before it."""

    steps: int | None
    """Of all optimizers, from the first one on: an estimate. None if it is not known any more."""
    source: str = ""
    """What says so, such as "range(100)"."""
