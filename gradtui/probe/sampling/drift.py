"""Detect frozen parameters that change although they are frozen. Runs on the training thread, in sampled steps.

Every in-place write, including an optimizer's, raises a tensor's version counter. A write through `.data` does not, and
averages of weights are often kept that way (`target.data.mul_(m).add_(...)`, `target.data = ...`). Therefore a few elements
spread over each tensor are compared as well: bit by bit, some tensors at a time, on the host. Only these elements give evidence
for a tensor that is part of a larger one, because a write to any other part raises its counter too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from gradtui.probe.memory import devices_with_room, of_this_process
from gradtui.probe.model import IndexMapping
from gradtui.probe.sampling.move_causes import MoveCauses
from gradtui.probe.torch_private.cuda_captures import is_capturing
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.probe.torch_private.private_names import shares_version, version_of
from gradtui.protocol.vocabulary import StateReason

_ELEMENTS = 64
"""Elements compared per tensor."""
_TENSORS = 64
"""Tensors compared per sampled step: about five microseconds each."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_GONE = -1


@dataclass
class _Read:
    """Elements of tensors of one device and dtype, on their way to the host. No copy of gradtui's stays on a device."""

    device: torch.device
    lengths: list[tuple[int, int]]
    """Index and number of elements of each tensor, in order. A tensor that is no longer frozen has the index `_GONE`."""
    copy: HostCopy


class DriftDetector:
    """Detects changes of the frozen parameters since they were first sampled as frozen, by parameter index."""

    def __init__(self) -> None:
        self.moved: set[int] = set()
        """Parameters that have changed since."""
        self._versions: dict[int, int] = {}
        self._samples: dict[int, tuple[torch.device, torch.Tensor]] = {}
        """The device of the tensor, and the elements compared, on the host."""
        self._under_way: list[_Read] = []
        self._next: int = 0
        self._causes = MoveCauses()

    def step_begins(self, parameters: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Record version counters before the optimizer step of a sampled step."""
        self._causes.step_begins(parameters)

    def on_step_post(
        self,
        step: int,
        optimizer: Optimizer | None,
        frozen: Sequence[tuple[int, torch.Tensor]],
        elsewhere: Set[int],
        norms: Mapping[int, float],
    ) -> dict[int, StateReason]:
        """Return the parameters that have changed since they were frozen, with the cause, after sampled step `step`.

        `norms` are the norms of the gradients that the step applied.
        """
        by_step, unchanged = self._causes.on_step_post(step, optimizer, frozen, norms)
        for index, tensor in frozen:
            if index in unchanged and self._versions.get(index, unchanged[index]) == unchanged[index]:
                self._versions[index] = version_of(tensor)
        self.look(frozen, elsewhere)
        self.moved |= by_step
        moved = {index: tensor for index, tensor in frozen if index in self.moved}
        unwritten = [index for index, tensor in moved.items() if self._versions.get(index) == _version(tensor)]
        self._causes.settle(moved, [index for index in unwritten if index not in by_step])
        return {index: self._causes.known.get(index, StateReason.NONE) for index in self.moved}

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move all state to the new parameter indexes."""
        self.moved = moved.parameter_set(self.moved)
        self._causes.tree_changed(moved)
        self._versions = moved.of_parameters(self._versions)
        self._samples = moved.of_parameters(self._samples)
        self._under_way.clear()

    def look(self, frozen: Sequence[tuple[int, torch.Tensor]], elsewhere: Set[int] = frozenset()) -> None:
        """Compare the parameters that are frozen now with their former values, and forget those that are not frozen any more.

        Parameters in `elsewhere` are frozen too. They are neither compared nor forgotten.
        """
        indices = {index for index, _ in frozen} | elsewhere
        for known in (self._versions, self._samples):
            for index in [index for index in known if index not in indices]:
                del known[index]
        for read in self._under_way:
            read.lengths = [(index if index in indices else _GONE, length) for index, length in read.lengths]
        for index, tensor in frozen:
            if not tensor.is_inference():
                version = version_of(tensor)
                if self._versions.setdefault(index, version) != version and not shares_version(tensor):
                    self.moved.add(index)
        self._arrived()
        if not self._under_way:
            self._read([(index, tensor) for index, tensor in self._turn(frozen) if index not in self.moved])
        self.moved &= indices

    def _turn(self, frozen: Sequence[tuple[int, torch.Tensor]]) -> Sequence[tuple[int, torch.Tensor]]:
        """Return the parameters whose values are compared this time: the next `_TENSORS`, beginning again after the last."""
        first = next((at for at, (index, _) in enumerate(frozen) if index >= self._next), 0)
        chosen = frozen[first : first + _TENSORS]
        self._next = chosen[-1][0] + 1 if chosen else 0
        return chosen

    def _read(self, chosen: Sequence[tuple[int, torch.Tensor]]) -> None:
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        for index, tensor in chosen:
            sample = _sample(tensor)
            if sample is not None:
                groups.setdefault((sample.device, sample.dtype), []).append((index, sample))
        room = devices_with_room(members[0][1] for members in groups.values())
        with of_this_process.apart(device.index for device in room):
            for (device, _), members in groups.items():
                if room.get(device, True):
                    lengths = [(index, sample.numel()) for index, sample in members]
                    copy = HostCopy(torch.cat([sample for _, sample in members]))
                    self._under_way.append(_Read(device, lengths, copy))
        self._arrived()

    def _arrived(self) -> None:
        waiting = []
        for read in self._under_way:
            if read.copy.is_there:
                self._compare(read)
            else:
                waiting.append(read)
        self._under_way = waiting

    def _compare(self, read: _Read) -> None:
        """Compare elements with former ones of the same tensors, on the host."""
        # A clone, since the copy may be in pinned memory.
        bits = read.copy.tensor().clone()
        known: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        begin = 0
        for index, length in read.lengths:
            now, begin = bits[begin : begin + length], begin + length
            if index == _GONE:
                continue
            device, before = self._samples.get(index, (None, now))
            if device != read.device or (before.shape, before.dtype) != (now.shape, now.dtype):
                self._samples[index] = read.device, now
            else:
                known.append((index, before, now))
        if known:
            differs = torch.cat([before for _, before, _ in known]) != torch.cat([now for *_, now in known])
            owners = [index for index, before, _ in known for _ in range(before.numel())]
            self.moved |= {index for index, differs in zip(owners, differs.tolist()) if differs}


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else version_of(tensor)


def _sample(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the bits of a few elements spread over a tensor, as a view; None where they cannot be read safely."""
    if type(tensor) not in (nn.Parameter, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    if not tensor.numel() or not _is_dense(tensor) or (tensor.is_cuda and is_capturing()):
        return None
    plain = tensor.detach()
    count = min(_ELEMENTS, plain.numel())
    spread = plain.as_strided((count,), (plain.numel() // count,))
    if spread.is_complex():
        spread = torch.view_as_real(spread).flatten()
    integers = _INTEGERS.get(spread.element_size())
    return None if integers is None else spread.view(integers)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's elements fill the memory between its first and its last element, in any order."""
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) == tensor.numel() - 1
