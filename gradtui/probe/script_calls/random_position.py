"""Find out whether a random generator continues from a saved state. Nothing is drawn from the script's generators.

PyTorch's generator for the CPU (`at::mt19937`) yields one stream of numbers of 32 bits. A generator that was set to a saved
state yields, after any number of draws, a part of the stream that follows from that state. Eight numbers in a row tell that
part: by chance they are somewhere in 16 million others with a probability below 2**-200. Runs on the training thread.
"""

from __future__ import annotations

import torch

MOST = 1 << 24
"""Draws that are looked through, at most: about 0.1 s. A training draws less between loading and its first step, mostly to
shuffle the indices of a data set."""
_AT_ONCE = 1 << 18
_NUMBERS = 8


def draws_between(saved: torch.Tensor, now: torch.Tensor, most: int = MOST) -> int | None:
    """Return how many numbers a generator has drawn between two of its states; None if more than `most`, or not known.

    Args:
        saved: an earlier state, as `torch.get_rng_state()` returns it.
        now: a later state.
        most: how many draws are looked through.
    """
    generator, later = torch.Generator("cpu"), torch.Generator("cpu")
    try:
        generator.set_state(saved.clone())
        later.set_state(now.clone())
    except (RuntimeError, TypeError):
        return None
    wanted = _drawn(later, _NUMBERS)
    rest = _drawn(generator, _NUMBERS - 1)
    for begin in range(0, most + 1, _AT_ONCE):
        stream = torch.cat((rest, _drawn(generator, min(_AT_ONCE, most - begin + 1))))
        windows = stream.unfold(0, _NUMBERS, 1)
        for at in (windows[:, 0] == wanted[0]).nonzero().flatten().tolist():
            if torch.equal(windows[at], wanted):
                return begin + int(at)
        rest = stream[-(_NUMBERS - 1) :]
    return None


def has_left(saved: torch.Tensor, now: torch.Tensor, most: int = MOST) -> bool:
    """Return whether a generator certainly does not continue from a state from which `draws_between` has not found it.

    It does not if it was seeded otherwise, or if it is within `most` draws of its seed. Else it may only have drawn more.
    """
    earlier, later = torch.Generator("cpu"), torch.Generator("cpu")
    try:
        earlier.set_state(saved.clone())
        later.set_state(now.clone())
    except (RuntimeError, TypeError):
        return False
    seed = later.initial_seed()
    return seed != earlier.initial_seed() or draws_between(later.manual_seed(seed).get_state(), now, most) is not None


def _drawn(generator: torch.Generator, count: int) -> torch.Tensor:
    # A number of 32 bits for each: of an int32 tensor `random_` takes 31 bits of it.
    return torch.empty(count, dtype=torch.int32, device="cpu").random_(generator=generator)
