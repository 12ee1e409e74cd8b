"""How much a test tries: few and always the same, with `--hypothesis-profile nightly` much more, as `.ci/nightly` does."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, TypeVar

import hypothesis
import pytest

FEW, MANY = 20, 1000
"""The examples of a cheap test in the profiles `ci` and `nightly`."""

T = TypeVar("T")


def register_profiles() -> None:
    """Register both profiles, and load `ci`. On a busy machine an example takes many times as long: none has a deadline."""
    hypothesis.settings.register_profile("ci", max_examples=FEW, deadline=None, derandomize=True, database=None)
    hypothesis.settings.register_profile("nightly", max_examples=MANY, deadline=None)
    hypothesis.settings.load_profile("ci")


def examples(few: int) -> int:
    """Return the number of examples of a test that tries `few` by default: as many times more as the profile tries."""
    return hypothesis.settings.default.max_examples * few // FEW  # type: ignore[union-attr]


def nightly(usual: T, thorough: T) -> T:
    """Return `thorough` in the profile `nightly`, and else `usual`."""
    return thorough if hypothesis.settings.get_current_profile_name() == "nightly" else usual


def only_nightly(reason: str) -> pytest.MarkDecorator:
    """Return the mark of a test that runs in the profile `nightly` only, because `reason`."""
    return pytest.mark.skipif(nightly(True, False), reason=f"{reason}: .ci/nightly")


def combinations(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the parameters of a test that varies several things: each value of each in one combination, or nightly in all.

    The longest axis is gone through once, and the others are repeated beside it.
    """
    values = [[*axis] for axis in axes]
    longest = max(map(len, values))
    each = [tuple(axis[at % len(axis)] for axis in values) for at in range(longest)]
    return nightly(each, list(product(*values)))
