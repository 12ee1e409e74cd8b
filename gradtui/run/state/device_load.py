"""How busy the models' device was while the run trained. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gradtui.protocol.events import DeviceSampled

_MIN_SAMPLES = 3
IDLE = 0.4
"""The share of the time for which a device computes nothing from which the host holds it up."""


@dataclass
class DeviceLoad:
    """Sums of the samples of a CUDA device since the first step has ended."""

    samples: int = 0
    """Those with a utilisation."""
    busy: float = 0.0
    """The sum of their utilisations, each of 1."""

    def add(self, sample: DeviceSampled) -> None:
        """Add a sample."""
        if sample.step > 0 and sample.utilisation is not None:
            self.samples += 1
            self.busy += sample.utilisation

    @property
    def idle(self) -> float | None:
        """The share of the time in which the device ran no kernel, of any process; None where that is unknown."""
        return 1 - self.busy / self.samples if self.samples >= _MIN_SAMPLES else None
