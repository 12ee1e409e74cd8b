"""How much a redraw of the tree and of the panel below it does, counted: it must not grow with the model, on the busiest
machine either.

Counted are the Python functions of ours that run until the screen is painted, and all functions, Textual's too, that the
drawing itself calls. The limits are what was found with Python 3.11, plus about a tenth.
"""

from __future__ import annotations

import pytest
from helpers.app_session import session
from helpers.calls import counting
from helpers.fakes import large_model, row_of, started

from gradtui.protocol import events as ev

ROWS = 29
"""Of the tree, in sight at 160×50."""
MAX_CALLS = (2_350, 2_400, 2_150)
"""Measured: 2,255 calls of gradtui for a redraw of the tree and the legend of the curves, 2,313 calls in all for the drawing,
1,944 calls of gradtui for a key of the filter."""
STEPS = 12
"""Until sparklines are full, and some more."""


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


MAX_EXPLAINED = 930
"""Measured: 851 calls of gradtui, for a row of 100 parameters."""


def sampled_step(model: ev.ModelsFound, states: str, step: int) -> list[ev.Event]:
    """A sampled step: every other module is never entered, and what autograd keeps differs from step to step."""
    modules = model.modules
    is_leaf = [module.subtree_modules == 1 for module in modules]
    reach = "".join(
        "e" if not leaf or states[module.first_parameter] == "T" else "-" for leaf, module in zip(is_leaf, modules)
    )
    count, size = len(modules), 1_000 + step
    saved, ranks = tuple(size if leaf else 0 for leaf in is_leaf), tuple(range(count))
    return [
        ev.ParametersClassified(float(step), step, states, states.translate({ord("C"): "0", ord("T"): "1"})),
        ev.GradientFlowMeasured(float(step), step, 0, reach, "g" * count, "1" * count, ranks, (1_000,)),
        ev.SavedBytesMeasured(float(step), step, saved, sum(saved), tuple(2 if leaf else -1 for leaf in is_leaf)),
    ]


async def calls_of_an_explanation(parameters: int) -> dict[str, int]:
    """Calls of ours for drawing the explanation after a sampled step, by the row under the cursor; the least of some."""
    model = large_model(parameters)
    states = "".join("CCTT"[index % 4] for index in range(len(model.parameters)))
    found = {}
    async with session((160, 50), events=[started(), model, *sampled_step(model, states, 1)]) as run:
        for path in ("", "layers.0", "layers.0.fc1.weight"):
            await run.go_to(path)
            counts = []
            for step in range(2, 5):
                run.source.put(*sampled_step(model, states, step))
                run.app._drain()
                run.dashboard.draw("tree")
                with counting() as drawn:
                    run.dashboard.draw("why")
                counts.append(drawn.ours)
            found[path] = min(counts)
            assert "Autograd keeps" in run.dashboard.why.text or path.endswith("weight")
    return found


async def test_an_explanation_does_not_grow_with_the_model() -> None:
    small, large = await calls_of_an_explanation(10_000), await calls_of_an_explanation(30_000)
    for path, calls in large.items():
        assert calls <= 1.07 * small[path], (small, large)
    assert max(small.values()) <= MAX_EXPLAINED, small


async def calls_of_a_key(parameters: int) -> int:
    """Calls of ours for moving the cursor between two modules at which backward stops, until the screen is painted."""
    model = large_model(parameters)
    states = "".join("CCTT"[index % 4] for index in range(len(model.parameters)))
    async with session((160, 50), events=[started(), model, *sampled_step(model, states, 1)]) as run:
        tree, counts = run.dashboard.tree_view, []
        first, second = (row_of(model, f"layers.0.fc{number}") for number in (1, 3))
        tree.show_row(first)
        await run.pilot.pause()
        for row in (second, first) * 3:
            with counting() as pressed:
                tree.show_row(row)
                await run.pilot.pause()
            counts.append(pressed.ours)
        assert tree.frontier is not None
        assert tree.current in tree.frontier.stops
        return min(counts)


async def test_key_does_not_look_through_all_modules_again() -> None:
    small, large = await calls_of_a_key(10_000), await calls_of_a_key(30_000)
    assert large <= 1.07 * small, (small, large)
