"""Which logged values are numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradtui.probe.metrics.values import value_of


class Odd(float):
    def __float__(self) -> float:
        raise AssertionError("code of the script")


class Wrapped(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("code of the script")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, 0.5),
        (3, 3.0),
        (numpy.float32(0.25), 0.25),
        (numpy.float64(0.25), 0.25),
        (numpy.int64(7), 7.0),
        (numpy.array(0.25), 0.25),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([7]), 7.0),
        (torch.tensor(0.25, requires_grad=True) * 2, 0.5),
        (nn.Parameter(torch.tensor(2.0)), 2.0),
        (torch.tensor(0.25, dtype=torch.bfloat16), 0.25),
        (True, None),
        (numpy.bool_(True), None),
        (torch.tensor(True), None),
        (10**400, None),
        (1j, None),
        (torch.tensor(1j), None),
        (torch.ones(2), None),
        (torch.ones((), device="meta"), None),
        (numpy.ones(2), None),
        ("0.5", None),
        (None, None),
        (Fraction(1, 2), None),
        (Odd(1.0), None),
        (torch.ones(()).as_subclass(Wrapped), None),
    ],
)
def test_what_is_a_number(given: Any, expected: float | None) -> None:
    assert value_of(given) == expected


def test_numbers_that_are_not_finite_are_numbers() -> None:
    assert value_of(math.inf) == math.inf
    found = value_of(torch.tensor(math.nan))
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("text", "expected"), [("0.25", 0.25), ("1e-3", 1e-3), ("87%", None), ("", None), ("0" * 99, None)]
)
def test_a_text_may_be_a_number(text: str, expected: float | None) -> None:
    assert value_of(text, reads_text=True) == expected


def test_nothing_is_read_where_script_would_see_it() -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("seen by the script")

    tensor = torch.tensor(1.0)
    with Mode():
        assert value_of(tensor) is None
    assert torch.func.vmap(lambda each: (value_of(each), each)[1])(torch.ones(3)).tolist() == [1, 1, 1]
