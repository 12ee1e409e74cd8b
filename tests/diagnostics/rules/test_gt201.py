"""GT201: parameters of an optimizer that get no gradient, and where the graph ends."""

from __future__ import annotations

import pytest
from scripted_run import calls, match, matches, run

from gradtui.run.state.findings import Level


def test_a_leaf() -> None:
    found = match("GT201", run(calls=calls(leaf_backwards=2)))
    assert (found.key, found.evidence, found.is_exact) == ("leaf", {"backwards": 2}, True)


@pytest.mark.parametrize("mode", ["n", "i"])
def test_a_module_under_no_grad(mode: str) -> None:
    found = match("GT201", run("UUTT", reach="e-e", grad_modes=f"g{mode}g"))
    assert (found.key, found.paths) == ("no_grad", ("a.weight", "a.bias"))


def test_a_module_that_runs_before_those_that_backward_enters() -> None:
    """The root is entered as well, and was called first of all."""
    state = run("UUTT", reach="e-e", called=(3, 1, 2), owned=(0, 1, 2, 3))
    found = match("GT201", state)
    assert (found.key, found.paths) == ("detached", ("a.weight", "a.bias"))


def test_an_auxiliary_head_is_a_note() -> None:
    """What it computes may be meant for nothing, or be rebuilt from numbers."""
    found = match("GT201", run("UUTT", reach="e-e", called=(1, 3, 2)))
    assert (found.key, found.level, found.paths) == ("unused", Level.NOTE, ("a.weight", "a.bias"))


@pytest.mark.parametrize(
    ("states", "reach", "called", "owned"),
    [
        pytest.param("UUTT", "e e", (1, -1, 2), (0, 1, 2, 3), id="not called"),
        pytest.param("UUUU", "---", (1, 2, 3), (0, 1, 2, 3), id="backward enters nothing"),
        pytest.param("UUTT", "e-e", (1, 2, 3), (2, 3), id="in no optimizer"),
    ],
)
def test_parameters_that_need_no_gradient(
    states: str, reach: str, called: tuple[int, ...], owned: tuple[int, ...]
) -> None:
    assert matches("GT201", run(states, reach=reach, called=called, owned=owned)) == []


def test_one_backward_of_a_leaf() -> None:
    assert matches("GT201", run(calls=calls(leaf_backwards=1))) == []


def test_a_loss_of_tensors_that_no_module_has() -> None:
    """Backward on another tensor's behalf, as for an adversarial input, is no mistake while a parameter trains."""
    found = match("GT201", run("UUUU", reach="---", calls=calls(backwards_to_others=2)))
    assert (found.key, found.evidence, found.is_exact) == ("leaf", {"backwards": 2}, True)
    assert matches("GT201", run("TTUU", reach="eee", owned=(0, 1), calls=calls(backwards_to_others=16))) == []
    assert matches("GT201", run("UUUU", reach="---", calls=calls(backwards_to_others=1))) == []
    assert matches("GT201", run("FFFF", "0000", calls=calls(backwards_to_others=16))) == []
