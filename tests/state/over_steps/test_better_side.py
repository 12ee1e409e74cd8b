"""Which side of a metric is better, by its name."""

from __future__ import annotations

import pytest

from gradtui.run.state.over_steps.better_side import better_side


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("val/loss", "lower"), ("eval_loss", "lower"), ("valid.perplexity", "lower"), ("val_WER", "lower"),
        ("val/acc", "higher"), ("test accuracy", "higher"), ("val_mIoU", "higher"), ("eval/rougeL", "higher"),
        # What the name does not say, and what says both, is not known.
        ("val/score", None), ("val/tokens", None), ("val/accuracy_loss", None), ("lr", None), ("", None),
    ],
)  # fmt: skip
def test_the_words_of_the_name_decide(name: str, side: str | None) -> None:
    assert better_side(name) == side
