"""Parameters by their modules, as saved and loaded trainings name them."""

from __future__ import annotations

import pytest

from gradtui.run.text.resume import modules_of

BLOCK = tuple(f"blocks.7.{part}.{name}" for part in ("norm", "attn") for name in ("weight", "bias"))


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (("a.b.weight",), 1, "a.b.weight"),
        (BLOCK, 4, "blocks.7 (4 tensors)"),
        (("blocks.0.fc.weight", "blocks.1.fc.weight", "head.weight"), 3, "blocks.0, blocks.1 and others (3 tensors)"),
        (("a", "b", "c"), 70, "a, b and others (70 tensors)"),
        (("a.x", "a.y"), 60, "a (60 tensors)"),
    ],
)
def test_parameters_by_their_modules(names: tuple[str, ...], count: int, words: str) -> None:
    assert modules_of(names, count) == words
