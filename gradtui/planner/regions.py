"""The checkpointed calls of a recorded step: which operations belong to them, and their repetition in backward. Any thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch.autograd.graph import saved_tensors_hooks

from gradtui.dataclass import dataclass
from gradtui.planner.lifetimes import numbers_in
from gradtui.planner.repetition import Repetition
from gradtui.protocol.operations import OperationsRecorded


@dataclass(frozen=True)
class Regions:
    """The checkpointed calls of a step under a plan."""

    of_operation: tuple[int, ...]
    """By operation: the number of the call that contains it, -1 if there is none."""
    inputs: Mapping[int, tuple[int, ...]]
    """By call: the numbers of the tensors from before that it takes."""

    @property
    def any(self) -> bool:
        """Whether there are such calls."""
        return bool(self.inputs)

    def stretch(self, region: int) -> range:
        """Return the operations of a call, which follow each other."""
        first = self.of_operation.index(region)
        return range(first, first + self.of_operation.count(region))


def regions_of(recorded: OperationsRecorded, checkpointed: Collection[int]) -> Regions:
    """Return the checkpointed calls of a step if gradtui checkpoints these modules. The script's own calls remain.

    The operations of a call are one stretch.
    """
    outermost: list[int] = []
    """By call: the outermost call of a checkpointed module around it, or the call itself; -1 if there is none."""
    for index, (module, caller) in enumerate(recorded.calls):
        around = outermost[caller] if caller >= 0 else -1
        outermost.append(around if around >= 0 else index if module in checkpointed else -1)
    numbers: list[int] = []
    inputs: dict[int, dict[int, None]] = {}
    made: dict[int, int] = {}
    number, before = -1, (-1, -1)
    for operation in recorded.operations:
        top = outermost[operation.call] if operation.call >= 0 else -1
        own = -1 if operation.region in recorded.own_regions else operation.region
        here = (top, -1) if top >= 0 else (-1, own)
        number += here not in ((-1, -1), before)
        before = here
        region = number if here != (-1, -1) else -1
        numbers.append(region)
        if region >= 0:
            taken = numbers_in((operation.arguments, operation.keywords))
            inputs.setdefault(region, {}).update(dict.fromkeys(each for each in taken if made.get(each) != region))
        made |= dict.fromkeys(operation.results, region)
    return Regions(tuple(numbers), {region: tuple(taken) for region, taken in inputs.items()})


class RepeatedRegion:
    """One checkpointed call: autograd keeps none of its tensors, and backward repeats it, as `torch.utils.checkpoint` does.

    Args:
        run: the repetition of the whole step.
        recorded: the step.
        stretch: the operations of the call.
        inputs: the numbers of the tensors that it takes.
        freed_after: by operation, the numbers of the tensors that nothing holds after it.
    """

    def __init__(
        self, run: Repetition, recorded: OperationsRecorded, stretch: range, inputs: Sequence[int],
        freed_after: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        self._operations = [(recorded.operations[at], freed_after[at]) for at in stretch]
        self._inputs = {number: run.tensor(number) for number in inputs}
        self._begin = run.beginning_with
        self._count = 0
        self._again: dict[int, torch.Tensor] = {}

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Let autograd keep a number for each tensor that it saves within the context."""
        with saved_tensors_hooks(self._pack, self._unpack):
            yield

    def _pack(self, _: torch.Tensor) -> int:
        self._count += 1
        return self._count - 1

    def _unpack(self, index: int) -> torch.Tensor:
        if index not in self._again:
            self._repeat()
        return self._again.pop(index)

    def _repeat(self) -> None:
        again, run, count = self._again, self._begin(self._inputs), 0

        def keep(tensor: torch.Tensor) -> int:
            nonlocal count
            again[count] = tensor.detach()
            count += 1
            return count

        with torch.enable_grad(), saved_tensors_hooks(keep, _never_read):
            for operation, unused in self._operations:
                run.repeat(operation)
                run.release(unused)
                # torch stops there too, and does not compute what nothing needs.
                if count >= self._count:
                    break


def _never_read(_: int) -> torch.Tensor:
    raise RuntimeError("no backward runs on the repetition of a region")
