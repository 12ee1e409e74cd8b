"""The states of the random generators that training uses: torch on the host and on each CUDA device, numpy, and `random`."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


class RandomStates:
    """The states now. Generators that the script has made itself are its own: a loader's stays where it is."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._python = random.getstate()
        numpy = _numpy_random()
        self._numpy = numpy.get_state(legacy=False) if numpy is not None else None

    def write(self) -> None:
        """Set all of them."""
        torch.set_rng_state(self._torch)
        if self._devices:
            torch.cuda.set_rng_state_all(self._devices)
        random.setstate(self._python)
        numpy = _numpy_random()
        if numpy is not None and self._numpy is not None:
            numpy.set_state(self._numpy)


def _numpy_random() -> Any:
    """Return `numpy.random` if the script has imported it; a generator that it has not imported it has not used."""
    return getattr(sys.modules.get("numpy"), "random", None)
