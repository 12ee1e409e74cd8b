"""Read the states of torch's own random number generators, without drawing from them. Any thread."""

from __future__ import annotations

import ctypes
from itertools import chain

import torch


def random_states() -> tuple[bytes, ...]:
    """Return the state of the generator of the CPU, and of each CUDA device in use. Those are numbers on the host."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    states = (generator.get_state() for generator in chain((torch.default_generator,), devices))
    return tuple(ctypes.string_at(state.data_ptr(), state.nbytes) for state in states)
