"""The time of each module in a training step. `gradtui.protocol.events` exports the event."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement


@dataclass(frozen=True, slots=True)
class ModuleTimesMeasured(Measurement):
    """The typical times of the newest sampled steps, by module, in nanoseconds. With several optimizers: of a step of each.

    "Own" times are without the modules that a module calls. A module that is never called itself, such as a list of modules,
    has the times of its children. What a checkpointed module computes again counts as backward.
    """

    forward: tuple[int, ...]
    own_forward: tuple[int, ...]
    backward: tuple[int, ...]
    own_backward: tuple[int, ...]
    samples: int
    """How many sampled steps they are from."""
    cost: float
    """Host seconds that timing takes in a sampled step."""
    is_on_device: bool = False
    """Whether the times are those of a device, between events on its stream. Otherwise the host's clock measured them."""
