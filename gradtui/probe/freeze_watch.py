"""Whether the tensors of a freeze really hold still: their version counters, and a checksum of their bits.

Every in-place write raises a tensor's version counter, except one through `.data` (weight clipping, averaged weights); that
is what the checksum is for. Runs on the training thread: a checksum reads the tensor once when it is frozen and once when
the freeze is verified, and on a device the answer is fetched by an asynchronous copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from gradtui.probe.host_copy import HostCopy
from gradtui.probe.torch_private import operations_are_observed, shares_version, version_of

VERIFY_STEPS = 10
"""A freeze is reported as holding after this many steps without a change."""

_WIDTHS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))


@dataclass(frozen=True)
class _Held:
    """One frozen tensor as it was."""

    tensor: weakref.ref[torch.Tensor]
    path: str
    version: int
    checksum: torch.Tensor | None


@dataclass(frozen=True)
class Verdict:
    """How the tensors of a freeze fared that are still there and still frozen."""

    tensors: int
    moved: tuple[str, ...]
    """Paths of those that were written to."""


class FreezeWatch:
    """The tensors of one freeze."""

    def __init__(self, command: int, step: int, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.command = command
        self.since_step = step
        # A mode of the script's would be asked about operations of ours.
        measurable = not operations_are_observed()
        self._held = [
            _Held(weakref.ref(tensor), path, version_of(tensor), _checksum(tensor) if measurable else None)
            for path, tensor in tensors
        ]
        self._under_way: tuple[list[_Held], HostCopy] | None = None

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """These have been toggled again: they are no part of this freeze any more."""
        changed = {id(tensor) for tensor in tensors}
        self._held = [held for held in self._held if id(held.tensor()) not in changed]

    def verdict(self) -> Verdict | None:
        """How they fared; None while a device has not told yet: ask again at the next step."""
        frozen = [(held, tensor) for held in self._held if (tensor := held.tensor()) is not None]
        frozen = [(held, tensor) for held, tensor in frozen if not tensor.requires_grad]
        if self._under_way is None:
            self._under_way = self._compare(frozen)
        compared, differ = self._under_way
        if not differ.is_there:
            return None
        changed = {id(held) for held, differs in zip(compared, differ.values()) if differs}
        same = {id(held) for held in compared} - changed
        moved = [
            held.path
            for held, tensor in frozen
            if id(held) in changed
            or (version_of(tensor) != held.version and not (id(held) in same and shares_version(tensor)))
        ]
        return Verdict(len(frozen), tuple(moved))

    def _compare(self, frozen: list[tuple[_Held, torch.Tensor]]) -> tuple[list[_Held], HostCopy]:
        """Those that have a checksum, and whether it differs from what it was, on its way to the host."""
        compared: list[_Held] = []
        differences: list[torch.Tensor] = []
        for held, tensor in frozen if not operations_are_observed() else ():
            now = _checksum(tensor) if held.checksum is not None else None
            if now is not None and held.checksum is not None and now.device == held.checksum.device:
                compared.append(held)
                differences.append(now != held.checksum)
        home = next((part.device for part in differences if part.is_cuda), torch.device("cpu"))
        there = [part.to(home, non_blocking=True) for part in differences]
        return compared, HostCopy(torch.stack(there) if there else torch.zeros(0, dtype=torch.bool))


def _checksum(tensor: torch.Tensor) -> torch.Tensor | None:
    """The sum of a tensor's bits taken as integers, on its device; None for a layout whose bits cannot be read.

    Any change of one element changes it. Eight bytes at a time it runs at the speed of memory.
    """
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    try:
        with torch.no_grad():
            data = tensor.detach()
            data = torch.view_as_real(data.resolve_conj()) if data.is_complex() else data
            if not data.is_contiguous():
                data = data.permute(sorted(range(data.dim()), key=data.stride, reverse=True)).contiguous()
            flat = data.view(-1)
            offset = flat.storage_offset() * flat.element_size()
            whole = next(kind for width, kind in _WIDTHS if flat.nbytes % width == 0 and offset % width == 0)
            total: torch.Tensor = flat.view(whole).sum(dtype=torch.int64)
            return total
    except (RuntimeError, NotImplementedError, TypeError):
        return None
