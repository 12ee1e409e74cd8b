"""What `gradtui do --wait` says of a command to all ranks of a job."""

from __future__ import annotations

from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import (
    CommandApplied,
    CommandProposed,
    CommandRejected,
    Event,
    ProposalClosed,
    RankOutcome,
)
from gradtui.remote.live.client import _Answer
from gradtui.run.text.ranks import outcome_lines

FREEZE = SetTrainable(7, "a", False)
PROPOSED = CommandProposed(0.0, 1, 100, FREEZE, 3)
APPLIED = CommandApplied(0.0, 3, FREEZE, "froze a", ())
MADE = RankOutcome(0, "made"), RankOutcome(1, "made")
MISSED = RankOutcome(0, "made"), RankOutcome(1, "refused", "no store")


def answer(*events: Event) -> _Answer:
    made = _Answer(7, measured=True)
    for event in events:
        assert not made.is_complete
        made.take(event)
    return made


def test_answer_waits_for_all_ranks() -> None:
    found = answer(PROPOSED, APPLIED, ProposalClosed(0.0, 3, 7, True, "", MADE))
    assert found.is_complete
    assert (found.found["text"], found.found["step"]) == ("froze a", 3)
    assert [each["did"] for each in found.found["ranks"]] == ["made", "made"]


def test_change_missed_by_rank_is_no_success() -> None:
    found = answer(PROPOSED, APPLIED, ProposalClosed(0.0, 3, 7, True, "", MISSED))
    assert found.is_complete
    assert "not all ranks" in found.found["refused"]
    shown = CommandRejected(0.0, 3, FREEZE, "no store")
    assert answer(PROPOSED, shown, ProposalClosed(0.0, 3, 7, True, "", MISSED)).is_complete
    found = answer(PROPOSED, shown, ProposalClosed(0.0, 3, 7, True, "", (MISSED[1],)))
    assert found.found["refused"] == "no store", "no rank has made it"


def test_a_refusal_has_what_each_rank_has_said() -> None:
    said = RankOutcome(0, "accepted"), RankOutcome(1, "refused", "no a")
    refused = CommandRejected(0.0, 2, FREEZE, "rank 1: no a")
    found = answer(PROPOSED, ProposalClosed(0.0, 2, 7, False, "rank 1: no a", said), refused)
    assert found.is_complete
    assert found.found["refused"] == "rank 1: no a"
    assert len(found.found["ranks"]) == 2
    assert answer(refused).is_complete, "it was not even proposed"


def test_answers_of_other_ranks_are_awaited() -> None:
    measured = CommandApplied(0.0, 3, FREEZE, "froze a", (), is_measured=True)
    found = answer(PROPOSED, measured)
    assert not found.awaits_receipt_only
    found.take(ProposalClosed(0.0, 3, 7, True, "", MADE))
    assert found.awaits_receipt_only
    assert found.without("the run is paused")["not_measured"] == "the run is paused"
    assert "not_measured" not in answer(PROPOSED, APPLIED).without("the run is paused")


def test_ranks_that_have_done_same_share_line() -> None:
    four = (*MADE, RankOutcome(2, "refused", "no store"), RankOutcome(3, "silent"))
    assert outcome_lines(four) == ["ranks 0, 1: made", "rank 2: refused: no store", "rank 3: no answer"]
    assert outcome_lines([RankOutcome(0, "accepted")]) == ["rank 0: accepted; nothing was changed"]
    assert outcome_lines([]) == []
