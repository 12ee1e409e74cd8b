"""Recognize saved states of the generators of NumPy, Python and CUDA devices, and tell whether a generator continues from one.

NumPy's and Python's are the Mersenne twister of `at::mt19937`, so `random_position.py` looks for them too, in a state of torch
that is made of theirs. A CUDA generator (Philox) has its seed and a count of what was drawn: PyTorch's
`CUDAGeneratorImpl::get_state` returns the two, 8 bytes each. Nothing is drawn from the script's generators. Training thread.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.probe.script_calls.random_position import MOST, draws_between

PYTHON, NUMPY, CUDA = "Python's random", "NumPy", "CUDA device"
_KIND = "MT19937"
_WORDS = 624
_SEED_BITS = 32
_NEAR = 1 << 20
"""Draws that are looked through after a seed."""
_CUDA_BYTES = 16
_LEGACY = struct.Struct(f"=QiiQ{_WORDS}Q")
"""How a state of torch's generator for the CPU begins: the seed, `left`, `seeded`, `next`, and the words."""


class GeneratorState(NamedTuple):
    """A saved state."""

    name: str
    """With the number of the device."""
    state: Any
    """Words and position of a twister; seed and count of a CUDA device."""


def found_in(key: Any, value: Any) -> list[GeneratorState]:
    """Return the states that a value is of, which has this key in a dictionary; empty for any other value."""
    if type(value) is tuple:
        state = _twister(value)
        return [state] if state is not None else []
    if type(value) is dict:
        words = value.get("state")
        if value.get("bit_generator") == _KIND and isinstance(words, Mapping):
            state = _twister((_KIND, words.get("key"), words.get("pos")))
            return [state] if state is not None else []
        return []
    # A mask of 16 bytes looks the same, so the name must say it.
    if not (isinstance(key, str) and "cuda" in key.lower()):
        return []
    states = value if type(value) in (list, tuple) else [value]
    if not states or not all(map(_is_cuda, states)):
        return []
    return [
        GeneratorState(f"{CUDA} {at}", struct.unpack("=Qq", bytes(each.tolist()))) for at, each in enumerate(states)
    ]


def lost(saved: Iterable[GeneratorState]) -> Iterator[str]:
    """Yield the names of generators that certainly do not continue from any of their saved states.

    Where the state is not found in what follows from a saved one, a twister counts only if it is found near the beginning of a
    seed: else it may have drawn more numbers than are looked through.
    """
    by_name: dict[str, list[Any]] = {}
    for each in saved:
        by_name.setdefault(each.name, []).append(each.state)
    for name, states in by_name.items():
        now = _now(name)
        if now is None:
            continue
        if name.startswith(CUDA):
            is_lost = all(now[0] != seed or now[1] < count for seed, count in states)
        else:
            is_lost = not any(_follows(each, now) for each in states) and any(
                _follows(begun, now, _NEAR) for begun in _beginnings(name)
            )
        if is_lost:
            yield name


def _twister(value: tuple[Any, ...]) -> GeneratorState | None:
    """Return what `random.getstate()` or `numpy.random.get_state()` has returned."""
    if len(value) < 3:
        return None
    version, words, position = value[:3]
    if type(version) is int and version == 3 and type(words) is tuple and len(words) == _WORDS + 1:
        return GeneratorState(PYTHON, words)
    is_whole = len(words) == _WORDS if type(words) in (list, tuple) else getattr(words, "shape", None) == (_WORDS,)
    if type(version) is str and version == _KIND and is_whole:
        return GeneratorState(NUMPY, (*map(int, words), int(position)))
    return None


def _is_cuda(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype is torch.uint8
        and value.is_cpu
        and value.shape == (_CUDA_BYTES,)
    )


def _now(name: str) -> Any:
    """Return the state of a generator of this process; None if it has none."""
    if name == PYTHON:
        return random.getstate()[1]
    if name == NUMPY:
        return _of_numpy()
    index = int(name.rpartition(" ")[2])
    if not torch.cuda.is_initialized() or index >= len(torch.cuda.default_generators):
        return None
    return struct.unpack("=Qq", bytes(torch.cuda.default_generators[index].get_state().tolist()))


def _of_numpy(seed: int | None = None) -> Any:
    """Return the words and the position of NumPy's generator, now or after a seed; None if it is not imported."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is None:
        return None
    found = (numpy if seed is None else numpy.RandomState(seed)).get_state(legacy=False)
    if found["bit_generator"] != _KIND:
        return None
    return (*found["state"]["key"].tolist(), int(found["state"]["pos"]))


def _beginnings(name: str) -> Iterator[Any]:
    """Yield the states that a generator has after it was seeded: with torch's seed, as frameworks do, or a usual one."""
    for seed in dict.fromkeys((torch.initial_seed() % (1 << _SEED_BITS), 0, 42)):
        if name == PYTHON:
            yield random.Random(seed).getstate()[1]
        else:
            yield _of_numpy(seed)


def _follows(saved: tuple[int, ...], now: tuple[int, ...], most: int = MOST) -> bool:
    return draws_between(_as_torch(saved), _as_torch(now), most) is not None


def _as_torch(words: tuple[int, ...]) -> torch.Tensor:
    """Return a state of torch's generator for the CPU that yields the same numbers. The last word is the position."""
    state = torch.Generator("cpu").get_state()
    *key, position = words
    # At the position 624 the next draw makes new words; torch counts down to it.
    head = _LEGACY.pack(0, _WORDS + 1 - position, 1, position % _WORDS, *key)
    state[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    return state
