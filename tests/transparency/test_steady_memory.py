"""The memory of a run that goes on and on does not grow with it: what is kept of the past has a size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.examples import nightly

from .three_ways import Left, by_plain, by_python, by_screen

MAX_BYTES = 4 << 20
"""What the process may grow by in 5,000 steps, the habits of its allocator included."""


@pytest.mark.slow
@pytest.mark.parametrize("run", nightly([by_screen], [by_python, by_plain, by_screen]), ids=lambda run: run.__name__)
def test_five_thousand_steps(run: Callable[..., Left], tmp_path: Path) -> None:
    left = run(("steady.py",), tmp_path, fresh=True)
    held = json.loads(left.files["held.json"])
    assert (left.exit_code, len(held)) == (0, 13)
    after_a_thousand_steps = held[2]
    assert max(held) - after_a_thousand_steps < MAX_BYTES
