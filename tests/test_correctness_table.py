"""Each case of `benchmarks/correctness.py`, where others are wrong or silent, is right for us."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from correctness_cases import CASES
from correctness_tools import TOOLS


@pytest.mark.parametrize("case", CASES)
def test_we_are_right(case: str) -> None:
    assert CASES[case](TOOLS["gradtui"]).partition(":")[0] == "right"


@pytest.mark.parametrize(
    ("case", "verdict"), [("AMP unscaled", "wrong"), ("detach", "silent"), ("residual +=", "right")]
)
def test_table_can_tell_loop_written_by_hand(case: str, verdict: str) -> None:
    """Norms read right after backward have the loss scaler's factor, and know nothing of what they do not find."""
    assert CASES[case](TOOLS["by_hand"]).partition(":")[0] == verdict
