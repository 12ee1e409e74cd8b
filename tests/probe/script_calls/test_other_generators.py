"""Whether the generators of Python and NumPy continue from a saved state, without drawing from them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.watched import watched
from test_resuming import Training, matches

from gradtui.probe.script_calls import other_generators
from gradtui.probe.script_calls.other_generators import CUDA, NUMPY, PYTHON, found_in, lost
from gradtui.probe.script_calls.random_position import draws_between


@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 1300])
def test_torch_state_from_python_has_its_numbers(drawn: int) -> None:
    generator = random.Random(7)
    for _ in range(drawn):
        generator.getrandbits(32)
    same = torch.Generator().set_state(other_generators._as_torch(generator.getstate()[1]))
    # `random_` has 31 bits of each number.
    numbers = torch.empty(1300, dtype=torch.int32).random_(generator=same).tolist()
    assert numbers == [generator.getrandbits(32) % (1 << 31) for _ in range(1300)]


def test_the_draws_between_two_states_are_counted() -> None:
    generator = random.Random(7)
    before = generator.getstate()[1]
    for _ in range(2000):
        generator.getrandbits(32)
    found = draws_between(*map(other_generators._as_torch, (before, generator.getstate()[1])))
    assert found == 2000


def test_states_are_recognized() -> None:
    np.random.seed(3)
    modern = np.random.get_state(legacy=False)
    (python,), (old,), (new,) = (found_in("x", each) for each in (random.getstate(), np.random.get_state(), modern))
    assert (python.name, old.name, new.name) == (PYTHON, NUMPY, NUMPY)
    assert old.state == new.state
    seed, count = 5, 16
    cuda = torch.tensor([*seed.to_bytes(8, "little"), *count.to_bytes(8, "little")], dtype=torch.uint8)
    assert found_in("torch_cuda_manual_seed", [cuda, cuda]) == [
        (f"{CUDA} 0", (seed, count)), (f"{CUDA} 1", (seed, count))
    ]  # fmt: skip
    for key, value in (("mask", cuda), ("cuda", cuda[:8]), ("cuda", []), ("x", (3, (1, 2), None)), ("x", (cuda, 1, 2))):
        assert found_in(key, value) == []


def test_generator_is_lost_only_if_that_is_certain() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(9)
    saved = [*found_in("x", random.getstate()), *found_in("x", np.random.get_state())]
    for _ in range(10):
        random.random()
        np.random.rand()
    assert list(lost(saved)) == []
    # At another seed, which nobody knows.
    random.seed(123_456)
    assert list(lost(saved)) == []
    # At the seed that torch has: the script has set it for all.
    random.seed(9)
    np.random.seed(9)
    np.random.rand(100)
    assert list(lost(saved)) == [PYTHON, NUMPY]


def at_the_seed(seed: int = 5) -> None:
    random.seed(seed)
    np.random.seed(seed)


SETS: dict[str, Callable[[dict[str, Any]], object]] = {
    PYTHON: lambda each: random.setstate(each["random_state"]),
    NUMPY: lambda each: np.random.set_state(each["numpy_random_seed"]),
    "torch": lambda each: torch.set_rng_state(each["torch_manual_seed"]),
}


@pytest.mark.parametrize("forgotten", [(), (NUMPY,), (PYTHON, NUMPY), ("torch", PYTHON)])
def test_unrestored_generators_of_accelerate_are_named(forgotten: tuple[str, ...], tmp_path: Path) -> None:
    at_the_seed()
    with watched():
        training = Training()
        training.train()
        random.random(), np.random.rand()
        torch.save(training.optimizer.state_dict(), tmp_path / "optimizer.bin")
        states = {
            "step": 40, "random_state": random.getstate(), "numpy_random_seed": np.random.get_state(),
            "torch_manual_seed": torch.get_rng_state(),
        }  # fmt: skip
        torch.save(states, tmp_path / "random_states_0.pkl", pickle_module=pickle)
    at_the_seed()
    with watched() as seen:
        training = Training()
        training.optimizer.load_state_dict(torch.load(tmp_path / "optimizer.bin"))
        loaded = torch.load(tmp_path / "random_states_0.pkl", weights_only=False)
        for name, restore in SETS.items():
            if name not in forgotten:
                restore(loaded)
        training.train(10)
    found = [match.message for match in matches(seen).get("GT804", [])]
    assert len(found) == (1 if forgotten else 0)
    for message in found:
        assert f"{tmp_path.name}/random_states_0.pkl has " in message
        assert all((name in message) == (name in forgotten) for name in (PYTHON, NUMPY))
