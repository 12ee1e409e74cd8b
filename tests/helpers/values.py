"""Nested values with tensors in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def assert_equal(found: Any, expected: Any) -> None:
    """Compare two nests of lists and dictionaries, their tensors to the bit."""
    if isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected)
    elif isinstance(expected, Tensor):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        one, other = (each.reshape(-1).view(torch.uint8) for each in (found, expected))
        assert torch.equal(one, other), (found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_equal(one, other)
    else:
        assert found == expected
