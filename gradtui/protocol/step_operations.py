"""How many operations the script's own code starts in a step, and where it reads values of tensors."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Measurement
from gradtui.protocol.script_lines import ScriptLine
from gradtui.protocol.step_times import StepPart


@dataclass(frozen=True, slots=True)
class PartOperations:
    """The operations of one part of the counted steps. Seconds are those of a step, and host time."""

    part: StepPart
    operations: int
    reads: int
    """Those of them that read a value to the host, such as `.item()`, and calls of `torch.cuda.synchronize`."""
    small_seconds: float
    """Starting those that take little. Each is taken for as long as the quickest of its kind."""
    large_seconds: float
    """What these compute besides, and the others, likewise."""
    waited_seconds: float
    """Reads of values that lie on a device: most of that time waits for the device."""
    between_seconds: float = 0.0
    """Code between two operations that takes longer than starting one, likewise: an environment, a loop over Python lists."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line of the script that reads values."""

    line: ScriptLine
    reads: int
    """In all counted steps."""
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class OperationsCounted(Measurement):
    """The operations of a few sampled steps so far, without those of backward, of the optimizer and of an evaluation.

    It replaces the event before it.
    """

    steps: int
    """Number of the counted steps."""
    graph_operations: int
    """Operations in the graphs of these steps: backward runs about as many."""
    parts: tuple[PartOperations, ...]
    lines: tuple[ReadLine, ...]
    """Those with most reads, or with the longest ones on a device."""
    calls: int = 0
    """Calls of models by the script, in all counted steps."""
    reads_of_results: int = 0
    """Reads, from the first of these calls to backward, of values that were computed just before."""
