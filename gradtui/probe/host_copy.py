"""Numbers on their way from a device to the host, asked for by the training thread and never waited for."""

from __future__ import annotations

from typing import Any

import torch

from gradtui.probe.cuda_captures import is_capturing


class HostCopy:
    """The values of a one-dimensional tensor, once they have arrived; on the CPU they are there at once.

    On CUDA they go to pinned memory by an asynchronous copy on the device's current stream, and an event tells when they have
    arrived (not yet confirmed on a device).
    """

    def __init__(self, values: torch.Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._host = values
        if values.is_cuda:
            self._host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record(torch.cuda.current_stream(values.device))

    @property
    def is_there(self) -> bool:
        """Whether `values` would not have to wait. While a CUDA graph is being captured nobody may ask the device."""
        if self._done is not None and not is_capturing() and self._done.query():
            self._done = None
        return self._done is None

    def wait(self) -> None:
        """Wait for the device: only where the run is over, or a person has asked and waits too."""
        if self._done is not None and not is_capturing():
            self._done.synchronize()
            self._done = None

    def values(self) -> list[Any]:
        """The numbers, which are there."""
        return self._host.tolist()

    def tensor(self) -> torch.Tensor:
        """The same as a tensor on the host."""
        return self._host
