"""What a measured figure says of the true one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Bound = Literal["exact", "at least", "at most", "about"]
"""`about`: it may be too high, and something higher may be missing."""


def bound_of_peak(*, is_exact: bool, devices: Sequence[object] = ()) -> Bound:
    """Return what a measured peak says; `devices` are those whose peaks it adds up, empty for one device."""
    if not is_exact:
        return "at least"
    return "at most" if devices else "exact"


def bound_of_known(bound: Bound, *, is_all: bool) -> Bound:
    """Return what the highest of some figures says, unless they are all: there may be a higher one."""
    if is_all:
        return bound
    return "at least" if bound in ("exact", "at least") else "about"
