"""The state of a row in words."""

from __future__ import annotations

import pytest
from helpers.lines import line_text

from gradtui.tui.rendering import STATE_ROLES
from gradtui.tui.tree.state_cell import FREEZE, UNFREEZE, state_cell


def words(letters: str, share: float | None = None, pending: str = "", width: int = 12) -> str:
    return line_text(state_cell(letters, share, pending, width))


@pytest.mark.parametrize(
    ("letters", "share", "width", "shown"),
    [
        ("T", 1.0, 12, "trains"),
        ("T", 0.031, 12, "3.1% trains"),
        ("T", 0.031, 9, "3.1%"),
        ("F", 0.0, 12, "passes"),
        ("O", 1.0, 12, "no optimizer"),
        ("O", 1.0, 9, "no optim…"),
        ("TFC", 0.124, 12, "12% trains"),
        ("TFC", 0.124, 9, "12%"),
        ("TF", None, 12, "trains…"),
        ("FC", 0.0, 12, "passes, off"),
        ("FC", 0.0, 9, "passes…"),
        ("MTF", 0.5, 12, "moved!…"),
        ("", None, 12, ""),
    ],
)
def test_a_state_in_words(letters: str, share: float | None, width: int, shown: str) -> None:
    assert words(letters, share, width=width) == shown.ljust(width)


@pytest.mark.parametrize(
    ("share", "word", "letter"),
    [(0.0, "frozen", FREEZE), (1.0, "trainable", UNFREEZE), (None, "–", "–"), (0.5, "–", "–")],
)
def test_row_toggled_since_sample_says_known(share: float | None, word: str, letter: str) -> None:
    assert words("-", share).strip() == word
    assert words("-", share, width=4).strip() == letter


def test_a_pending_change_comes_before_the_state() -> None:
    assert words("T", 1.0, FREEZE).strip() == "freeze…"
    assert words("F", 0.0, UNFREEZE, width=9) == "unfreeze…"
    assert state_cell("T", 1.0, FREEZE, 12)[0][1] == "pending"


def test_letters_in_narrow_column_end_in_ellipsis() -> None:
    assert words("NMOUZST", 0.5, width=4) == "NMO…"
    assert words("TFC", 0.5, width=4) == "TFC "
    assert state_cell("T", 1.0, "", 4)[0] == ("T", STATE_ROLES["T"])


@pytest.mark.parametrize(("broken", "word"), [("Inf", "Inf"), ("NaN", "NaN"), ("", "NaN/Inf")])
def test_values_that_are_not_finite_have_their_name(broken: str, word: str) -> None:
    (span,) = state_cell("N", None, "", 12, broken)[:1]
    assert span[0].strip() == word
