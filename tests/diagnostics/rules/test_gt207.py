"""GT207: clipping of scaled gradients."""

from __future__ import annotations

from scripted_run import calls, match, matches, run


def test_gradients_that_are_not_unscaled() -> None:
    found = match("GT207", run(calls=calls(clips=20, scaled_clips=20)))
    assert found.evidence == {"clips": 20, "scaled_clips": 20}


def test_one_call_and_none() -> None:
    assert matches("GT207", run(calls=calls(clips=20, scaled_clips=1))) == []
    assert matches("GT207", run(calls=calls(clips=20))) == []
