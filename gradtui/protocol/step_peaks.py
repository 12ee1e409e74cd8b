"""The peaks of the phases of a step, from which a forecast of its peak starts, and the blocks in which a device counts them."""

from __future__ import annotations

from operator import itemgetter

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import Phase

CUDA_BLOCK = 512
"""The CUDA allocator rounds requests up to a multiple of these bytes (PyTorch: CUDACachingAllocator.cpp, kMinBlockSize)."""


def whole_blocks(nbytes: int, block: int) -> int:
    """Return bytes rounded up to a multiple of `block`."""
    return -(-nbytes // block) * block


@dataclass(frozen=True, slots=True)
class StepPeaks:
    """The most bytes that are allocated in each phase of a step."""

    step: int
    phases: tuple[tuple[Phase, int], ...]
    """Each stretch of a phase in its order, with its highest total. There is at least one."""
    first: int
    """The total when the step begins."""
    last: int
    """The total when it ends."""
    lowest: int
    """The lowest total in it."""
    backward_of_models: int | None = None
    """The highest total in backward from when it reaches the models; None if it is unknown."""
    backward_of_loss: int | None = None
    """The highest total in backward before that."""
    keeps_gradients: bool = False
    """Whether `zero_grad` fills gradients with zeros, so that they are there in all phases."""
    scratch: int = 0
    """The most bytes in the optimizer's step beyond what is there when it begins or ends; 0 if several optimizers step."""
    steps_at_once: bool = False
    """Whether optimizers step all their parameters at once, as those of torch.optim do on a device by default (`foreach`):
    what their step takes is then as large as all gradients, else as the largest one."""
    block: int = 1
    """Each storage counts as a multiple of these bytes: 512 where the totals are those of the CUDA allocator's blocks."""
    reserved: int | None = None
    """What the CUDA allocator has reserved when the step ends; None where it is unknown, and on the CPU."""

    @property
    def highest(self) -> tuple[Phase, int]:
        """The phase with the highest total, and that total."""
        return max(self.phases, key=itemgetter(1))
