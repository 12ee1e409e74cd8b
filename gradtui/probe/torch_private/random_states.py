"""Read and set the states of random number generators, without drawing from them."""

from __future__ import annotations

import ctypes
import random
import sys
from itertools import chain
from typing import Any

import torch


def random_states() -> tuple[bytes, ...]:
    """Return the state of the generator of the CPU, and of each CUDA device in use. Those are numbers on the host."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    states = (generator.get_state() for generator in chain((torch.default_generator,), devices))
    return tuple(ctypes.string_at(state.data_ptr(), state.nbytes) for state in states)


def saved_random_states() -> dict[str, Any]:
    """Return the states of torch, of each CUDA device, of Python and, if the script has imported it, of NumPy.

    All values are of types that `torch.load(weights_only=True)` reads. `torch.set_rng_state`, `torch.cuda.set_rng_state_all`,
    `random.setstate` and `numpy.random.set_state` take them.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "cuda": cuda, "python": random.getstate()}
    if (numpy := sys.modules.get("numpy.random")) is not None and hasattr(numpy, "get_state"):
        found = numpy.get_state(legacy=False)
        # Of another generator, which a script can put in its place, `set_state` takes no tuple.
        if found["bit_generator"] == _NUMPY_GENERATOR:
            words = found["state"]
            states["numpy"] = (
                _NUMPY_GENERATOR, words["key"].tolist(), int(words["pos"]), int(found["has_gauss"]), float(found["gauss"])
            )  # fmt: skip
    return states


def bytes_of(states: dict[str, Any]) -> int:
    """Return how many bytes of memory states take that `saved_random_states` has returned."""
    numbers = sum(sys.getsizeof(each) for each in (states["python"][1], states.get("numpy", ((), ()))[1]))
    return numbers + sum(int(each.nbytes) for each in (states["torch"], *states["cuda"]))


_NUMPY_GENERATOR = "MT19937"


def set_random_states(states: dict[str, Any]) -> None:
    """Set the states that `saved_random_states` has returned. Training thread only: the script draws from them."""
    torch.set_rng_state(states["torch"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
    random.setstate(states["python"])
    if "numpy" in states and (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.set_state(states["numpy"])
