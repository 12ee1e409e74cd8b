"""How much a redraw of the tree does, counted: it must not grow with the model, on the busiest machine either.

Counted are the Python functions of ours that run until the screen is painted, and all functions, Textual's too, that the
drawing itself calls. The limits are what was found with Python 3.11, plus about a tenth.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from app_session import session
from fakes import large_model, started

import gradtui
from gradtui.protocol import events as ev

OURS = str(Path(gradtui.__file__).parent)
ROWS = 27
"""Of the tree, in sight at 160×50."""
MAX_CALLS = (1_850, 1_950, 1_900)
"""Found: 1,684 of ours for a redraw, 1,791 of all for the drawing, 1,713 of ours for a key of the filter."""
STEPS = 12
"""Until sparklines are full, and some more."""


class Counted:
    """Calls of ours, and of all."""

    def __init__(self) -> None:
        self.ours = self.all = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.all += 1
            self.ours += frame.f_code.co_filename.startswith(OURS)


@contextmanager
def counting() -> Iterator[Counted]:
    counted, before = Counted(), sys.getprofile()
    sys.setprofile(counted)
    try:
        yield counted
    finally:
        sys.setprofile(before)


async def calls_of_a_redraw(parameters: int, known: str) -> tuple[int, int, int]:
    """Calls of ours for folding a row of norms in and drawing it, of all for the drawing alone, of ours for a key of the
    filter; the least of some steps. `known` says of which parameters a norm is known, over and over."""
    model = large_model(parameters)
    count = len(model.parameters)
    first = [started(), model, ev.ParametersClassified(1.0, 1, "T" * count, "1" * count)]
    async with session((160, 50), events=first) as run:
        tree = run.dashboard.tree_view
        tree.action_unfold_all()
        ours, everything = [], []
        for step in range(1, STEPS + 1):
            row = tuple(float(step + index % 7) if known[index % len(known)] == "1" else None for index in range(count))
            run.source.put(ev.GradientsMeasured(float(step), step, 1.0, 0.5, row))
            with counting() as folded:
                run.app._drain()
            with counting() as drawn:
                run.dashboard.draw("tree")
            with counting() as painted:
                await run.pilot.pause()
            ours.append(folded.ours + drawn.ours + painted.ours)
            everything.append(drawn.all)
        shown = [line for line in tree.lines if any(text.strip() for text, _ in line)]
        assert len(shown) == ROWS
        with counting() as filtered:
            tree.set_filter("weight")
        # The first of them meet sparklines of another width.
        return min(ours[8:]), min(everything[8:]), filtered.ours


@pytest.mark.parametrize("known", ["1", "10"], ids=["all norms known", "every other one"])
async def test_a_redraw_does_not_grow_with_the_model(known: str) -> None:
    small, large = await calls_of_a_redraw(100, known), await calls_of_a_redraw(10_000, known)
    for found, found_of_many, most in zip(small, large, MAX_CALLS):
        assert found <= most, (small, large)
        assert found_of_many <= 1.07 * found
