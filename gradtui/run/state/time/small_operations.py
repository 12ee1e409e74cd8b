"""How much of the loop goes to starting small operations, and to reads of values that wait for a device. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.step_operations import ReadLine
from gradtui.protocol.step_times import StepPart
from gradtui.run.state.run_state import RunState
from gradtui.run.state.time.step_shares import step_shares

_MOST_S = 40e-6
"""Host time of a small operation at most, with the Python code around it. More is not the operation's."""
_STANDS_OUT, _READS_STAND_OUT = 0.6, 0.5
"""The share of the loop that is small operations, and the share if they are to be changed since they are reads."""
_MIN_OPERATIONS, _MIN_READS = 500, 100
"""In a step. Fewer are nothing unusual."""
_MIN_CALLS, _OF_CALLS = 8, 0.9
"""Calls of models in a step, and reads for each of them, from which the next call depends on the one before."""
_WAITS = 0.2
"""The share of reads that wait from which they are worth a sentence."""
_OF_OPERATIONS = 0.15
"""The share of reads among the operations from which they are what is to be changed."""


@dataclass(frozen=True)
class SmallOperations:
    """The operations of a step, and the time that goes to starting them. Times are seconds, counts are means of a step."""

    share: float
    """Of the script's time in the training loop, 0 to 1."""
    seconds: float
    """In all steps."""
    a_step: float
    operations: float
    """With those of backward, of which there are about as many as in the graph."""
    reads: float
    """Those of them that read a value."""
    waited: float
    """Host time of reads that wait for a device."""
    lines: tuple[ReadLine, ...]
    waited_share: float
    """The share of the loop that is such reads."""
    on_device: bool
    waits_for_host: bool | None
    """Whether the device has less to do than the host can start; None without a device, or if it is unknown."""
    own_code: float
    """The share of the loop that is small operations of the script's own code, outside of the model."""
    calls: float = 0.0
    """Calls of models by the script."""
    between: float = 0.0
    """The share of the loop that is the script's own code from the first call of a model to backward: an environment's."""
    reads_of_results: float = 0.0
    """Reads of what was computed just before, from the first of these calls to backward."""

    @property
    def each(self) -> float:
        """Mean host time of a small operation."""
        return self.a_step / self.operations

    @property
    def are_reads(self) -> bool:
        """Whether so many of them are reads that these are what is to be changed."""
        return self.reads >= _MIN_READS and self.reads >= _OF_OPERATIONS * self.operations

    @property
    def depend_on_reads(self) -> bool:
        """Whether the script calls a model again and again, and reads a result of each call: so an agent acts."""
        return self.calls >= _MIN_CALLS and self.reads_of_results >= _OF_CALLS * self.calls

    @property
    def stand_out(self) -> bool:
        """Whether most of the loop goes to them, they are many, and no device computes meanwhile."""
        is_held_up = bool(self.waits_for_host) or not self.on_device
        least = _READS_STAND_OUT if self.are_reads and not self.depend_on_reads else _STANDS_OUT
        return is_held_up and self.share >= least and (self.operations >= _MIN_OPERATIONS or self.are_reads)

    @property
    def waits_stand_out(self) -> bool:
        """Whether the loop waits for a device at its reads, and the device does not compute most of that time."""
        return self.waited_share >= _WAITS and bool(self.waits_for_host)


def small_operations(state: RunState) -> SmallOperations | None:
    """Return what small operations take of the loop; None before ten steps, or if none were counted.

    A part's time is that of the steps that were not sampled. Its operations divide it as they would divide the counted ones if
    nothing else ran on the machine.
    """
    shares, counted = step_shares(state.step_times), state.counted
    if shares is None or counted is None or not counted.steps or shares.is_disturbed:
        return None
    small, in_forward, between = dict.fromkeys(StepPart, 0.0), 0.0, 0.0
    waited = 0.0
    for each in counted.parts:
        whole = shares.a_step(each.part)
        known = each.small_seconds + each.large_seconds + each.between_seconds
        # In a counted step the read waits for gradtui's own operations, too.
        waits = min(each.waited_seconds, max(0.0, whole - each.small_seconds))
        waited += waits
        if known > 0:
            fraction = each.small_seconds / known
            small[each.part] = max(0.0, min(fraction * (whole - waits), _MOST_S * each.operations / counted.steps))
        if each.part is StepPart.FORWARD and whole > 0:
            in_forward = small[each.part] / whole
            between = whole * each.between_seconds / known if known > 0 else 0.0
    graph = counted.graph_operations / counted.steps
    small[StepPart.BACKWARD] = min(in_forward * shares.a_step(StepPart.BACKWARD), _MOST_S * graph)
    loop = shares.seconds / shares.steps
    a_step = sum(small.values())
    return SmallOperations(
        a_step / loop,
        a_step * shares.steps,
        a_step,
        graph + sum(each.operations for each in counted.parts) / counted.steps,
        sum(each.reads for each in counted.parts) / counted.steps,
        waited,
        counted.lines,
        waited / loop,
        state.device is not None and state.device.index is not None,
        state.device_load.waits_for_host,
        (small[StepPart.PREPARE] + small[StepPart.OTHER]) / loop,
        counted.calls / counted.steps,
        between / loop,
        counted.reads_of_results / counted.steps,
    )
