"""Read, write and clear rows of tensors, given as ranges along the first dimension.

No function raises a version counter: autograd would refuse a backward through a graph that keeps the tensor, although the rows
have the bits again that they had.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gradtui.run.state.tree.row_ranges import Ranges, count

_SLICES = 16
"""At most this many ranges are copied one by one, and more by a tensor of their indexes."""


class Rows:
    """Some rows of all tensors of one shape."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.count = count(ranges)
        self._by_device: dict[torch.device, torch.Tensor] = {}

    def read(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return copies of the rows, one for each range or one for all."""
        data = tensor.data
        if len(self.ranges) > _SLICES:
            return [data.index_select(0, self._indexes(data.device))]
        return [data[begin:end].clone() for begin, end in self.ranges]

    def write(self, tensor: torch.Tensor, copies: Sequence[torch.Tensor]) -> None:
        """Write back what `read` has returned for a tensor of the same shape."""
        data = tensor.data
        if len(self.ranges) > _SLICES:
            data.index_copy_(0, self._indexes(data.device), copies[0])
            return
        for (begin, end), copy in zip(self.ranges, copies):
            data[begin:end].copy_(copy)

    def clear(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient without these rows: the same tensor, or another one in place of a sparse gradient."""
        if gradient.layout is torch.sparse_coo:
            return self._without(gradient.detach().coalesce())
        data = gradient.data
        if len(self.ranges) > _SLICES:
            data.index_fill_(0, self._indexes(data.device), 0)
        else:
            for begin, end in self.ranges:
                data[begin:end].zero_()
        return gradient

    def _without(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return a sparse gradient without the rows. A device is waited for, as by the optimizer that coalesces it anyway."""
        indexes, values = gradient.indices(), gradient.values()
        keeps = ~torch.isin(indexes[0], self._indexes(indexes.device))
        # torch warns where the script has not said whether to check: these are indexes of a tensor that there is.
        return torch.sparse_coo_tensor(
            indexes[:, keeps], values[keeps], gradient.shape, is_coalesced=True, check_invariants=False
        )

    def _indexes(self, device: torch.device) -> torch.Tensor:
        if device not in self._by_device:
            rows = [torch.arange(begin, end, device=device) for begin, end in self.ranges]
            self._by_device[device] = torch.cat(rows)
        return self._by_device[device]
