from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradtui.run.state.series import RatioHistory


@given(st.lists(st.integers(0, 40), max_size=400))
def test_history_is_bounded_and_keeps_last_looks(parameters: list[int]) -> None:
    history = RatioHistory(points=60, each=8)
    for step, parameter in enumerate(parameters):
        history.append(parameter, step, 0.5)
        assert len(history) == sum(len(history.of(index)) for index in range(41)) <= 60
        assert history.of(parameter).steps[-1] == step


def test_what_was_looked_at_longest_ago_gives_way() -> None:
    history = RatioHistory(points=6, each=4)
    for step, parameter in enumerate((1, 2, 1, 3, 2, 1, 3)):
        history.append(parameter, step, float(step))
    assert history.of(2).steps == []
    assert history.of(1).values == [0.0, 2.0, 5.0]
    moved = history.relisted({1: 7})
    assert moved.of(7).values == [0.0, 2.0, 5.0]
    assert (list(moved.parameters), len(moved)) == ([7], 3)
