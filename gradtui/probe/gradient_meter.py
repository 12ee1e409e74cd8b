"""Gradient norms of a step: one multi-tensor norm per device and dtype, one host read, never waited for on CUDA.

L2 norms, `sqrt(sum |g|^2)` over all elements of a gradient, as `torch.nn.utils.clip_grad_norm_` computes them. Half
precision gradients accumulate in float32. On CUDA the stacked norms go to pinned memory by an asynchronous copy, which is
polled at later steps; a reading that would have to be waited for is dropped (not yet confirmed on a device).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gradtui.probe.torch_private import multi_tensor_norms

_RING = 4
"""Readings that may be under way on a device; one more drops the oldest."""
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class NormReading:
    """Norms of one step. `norms` holds (parameter index, norm); `loss` is None if it was not a single number."""

    step: int
    total: float | None
    loss: float | None
    norms: list[tuple[int, float]]


@dataclass
class _UnderWay:
    step: int
    indices: list[int]
    with_loss: bool
    values: torch.Tensor
    done: torch.cuda.Event


class GradientMeter:
    """Measures the gradients it is given and hands out readings as they become available."""

    def __init__(self, deliver: Callable[[NormReading], None]) -> None:
        self.dropped = 0
        """Readings given up because the device had not finished them in time."""
        self._deliver = deliver
        self._under_way: deque[_UnderWay] = deque()

    def measure(
        self,
        step: int,
        gradients: list[tuple[int, torch.Tensor]],
        loss: torch.Tensor | None,
        scale: torch.Tensor | None = None,
    ) -> None:
        """Measure the gradients of `step`, given as (parameter index, gradient).

        `scale` is what a loss scaler has multiplied them by, if the optimizer takes that out itself.
        """
        if any(gradient.is_cuda for _, gradient in gradients) and torch.cuda.is_current_stream_capturing():
            return
        with torch.no_grad():
            indices, stacked = _norms(gradients)
            if scale is not None:
                stacked = [part / scale.to(part.device, torch.float64, non_blocking=True) for part in stacked]
            with_loss = loss is not None and loss.numel() == 1
            if with_loss and loss is not None:
                stacked.append(loss.detach().reshape(1).to(torch.float64))
            if not stacked:
                return
            home = next((part.device for part in stacked if part.is_cuda), stacked[0].device)
            values = torch.cat([part.to(home, non_blocking=True) for part in stacked])
        if values.is_cuda:
            self._start_reading(step, indices, with_loss, values)
        else:
            # On the CPU this is the step's one host read; the numbers are already there.
            self._deliver(_reading(step, indices, with_loss, values.tolist()))

    def _start_reading(self, step: int, indices: list[int], with_loss: bool, values: torch.Tensor) -> None:
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        self._under_way.append(_UnderWay(step, indices, with_loss, host, done))
        if len(self._under_way) > _RING:
            self._under_way.popleft()
            self.dropped += 1

    def poll(self) -> None:
        """Deliver the readings that a device has finished; never waits."""
        while self._under_way and self._under_way[0].done.query():  # type: ignore[no-untyped-call]
            ready = self._under_way.popleft()
            self._deliver(_reading(ready.step, ready.indices, ready.with_loss, ready.values.tolist()))

    def finish(self) -> None:
        """Deliver what is still under way; may wait for the device, since the run is over."""
        if self._under_way:
            self._under_way[-1].done.synchronize()
        self.poll()


def _reading(step: int, indices: list[int], with_loss: bool, values: list[float]) -> NormReading:
    loss = values.pop() if with_loss else None
    total = _total(values) if indices else None
    return NormReading(step, total, loss, list(zip(indices, values)))


def _total(norms: list[float]) -> float:
    if any(math.isnan(norm) for norm in norms):
        return math.nan
    return math.hypot(*norms)


def _norms(gradients: list[tuple[int, torch.Tensor]]) -> tuple[list[int], list[torch.Tensor]]:
    """Parameter indices and, in the same order, their norms as one float64 tensor per device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
    for index, gradient in gradients:
        plain = _dense(gradient)
        groups.setdefault((plain.device, plain.dtype), []).append((index, plain))
    indices: list[int] = []
    stacked: list[torch.Tensor] = []
    for (_, dtype), members in groups.items():
        indices += [index for index, _ in members]
        tensors = [tensor for _, tensor in members]
        norms = multi_tensor_norms(tensors, torch.float32 if dtype in _HALF else None)
        stacked.append(torch.stack(norms).to(torch.float64))
    return indices, stacked


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """A tensor whose L2 norm is the gradient's: the values of a sparse one, the local shard of a distributed one."""
    if gradient.layout is torch.sparse_coo:
        return gradient.coalesce().values()
    to_local = getattr(gradient, "to_local", None)
    if to_local is not None:
        # `full_tensor()` would be a collective: a deadlock if only one rank measures.
        local: torch.Tensor = to_local()
        return local
    return gradient
