"""GT303: evaluations with a graph."""

from __future__ import annotations

from scripted_run import calls, match, matches, run


def test_evaluations_that_keep_a_graph() -> None:
    assert match("GT303", run(calls=calls(unused_eval_graphs=3))).evidence == {"forwards": 3}


def test_two_of_them_and_a_run_that_does_not_train() -> None:
    assert matches("GT303", run(calls=calls(unused_eval_graphs=2))) == []
    assert matches("GT303", run(calls=calls(unused_eval_graphs=3), steps=0)) == []
