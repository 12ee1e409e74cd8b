"""What all tests of reports have in common."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_bundle_of_scripts() -> Iterator[None]:
    """What draws the charts is put together once for all pages: that takes a second, and gives the same each time."""
    try:
        import vl_convert
    except ImportError:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "javascript_bundle", functools.cache(vl_convert.javascript_bundle))
        yield
