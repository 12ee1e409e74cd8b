"""What is read without a probe, from the import of torch on: the counter of CPU memory, and samples of host and devices."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe.samplers.cpu_memory import cpu_allocator
from gradtui.probe.samplers.device import DeviceSampler
from gradtui.probe.samplers.sampler import Sampler, SamplerThread
from gradtui.protocol.events import Event


class Readings:
    """The counter of CPU memory, which counts from now on, and the sampler thread.

    Args:
        at: returns the seconds since the run began.
        emit: receives the samples.
        failed: called once for each sampler that failed, with its name and the error.
    """

    def __init__(
        self, at: Callable[[], float], emit: Callable[[Event], None], failed: Callable[[str, str], None]
    ) -> None:
        self.allocator = cpu_allocator()
        self.steps: Callable[[], int] = lambda: 0
        """Returns the number of steps. A probe has its own."""
        self.device_index: Callable[[], int] = lambda: 0
        """Returns torch's index of the device that holds most of the models. A probe has its own."""
        device = DeviceSampler(at, lambda: self.steps(), lambda: self.device_index())
        self._thread = SamplerThread((device,), emit, failed)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, sampler: Sampler) -> None:
        """Call another sampler, too."""
        self._thread.add(sampler)

    def stop(self) -> None:
        """Stop the thread, and wait for a reading in progress (only briefly if the driver hangs)."""
        self._thread.stop()
