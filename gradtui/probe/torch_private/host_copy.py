"""Copy values from a device to the host for the training thread.

What the user or the script asks for may wait for the device: a pause at the first NaN, the verification of a freeze, an
unfreeze in half precision, the offload or saving of state, a kept state and the return to it, the checks of a return policy,
the note of a saved training and the first step of a resumed one, `summary()`, an awaited receipt at the end. Nothing else
does.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import torch

from gradtui.probe.torch_private.cuda import is_capturing

_BETWEEN_WAITS_NS = 1_000_000_000
"""The shortest time between two waits for a device without asynchronous copies."""
_ONE_WAIT_NS = 5_000_000
"""A copy this soon after a wait hardly waits again."""


class HostCopy:
    """Holds the values of a one-dimensional tensor once they have arrived; for a CPU tensor they are there at once.

    From CUDA they are copied asynchronously to pinned memory on the device's current stream, and an event shows when they
    have arrived (checked on a simulated device only). From any other device (MPS, XPU) a copy waits until the device has
    finished all its work, so several copies are made together, once a second at most.
    """

    _waited_at = -_BETWEEN_WAITS_NS
    """When a device without asynchronous copies was last waited for."""

    def __init__(self, values: torch.Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._host = values
        self._must_wait = values.device.type not in ("cpu", "cuda")
        if values.is_cuda:
            self._host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record(torch.cuda.current_stream(values.device))

    @property
    def is_there(self) -> bool:
        """Whether `values` would not have to wait. While a CUDA graph is being captured the device must not be queried."""
        if self._must_wait:
            since = perf_counter_ns() - HostCopy._waited_at
            if _ONE_WAIT_NS < since < _BETWEEN_WAITS_NS:
                return False
            self._fetch(anew=since >= _BETWEEN_WAITS_NS)
        if self._done is not None and not is_capturing() and self._done.query():
            self._done = None
        return self._done is None

    def wait(self) -> None:
        """Wait for the device. Call it only when the run is over, or when the user has asked and waits too."""
        if self._must_wait:
            self._fetch(anew=True)
        if self._done is not None and not is_capturing():
            self._done.synchronize()
            self._done = None

    def values(self) -> list[Any]:
        """Return the numbers. Call it only once they have arrived."""
        return self._host.tolist()

    def tensor(self) -> torch.Tensor:
        """Return the same numbers as a tensor on the host."""
        return self._host

    def _fetch(self, *, anew: bool) -> None:
        self._host, self._must_wait = self._host.to("cpu"), False
        if anew:
            HostCopy._waited_at = perf_counter_ns()
