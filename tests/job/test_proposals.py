"""What the viewer proposes, confirms and cancels. See `test_all_or_none.py` for ranks and viewer together."""

from __future__ import annotations

import itertools

import pytest
from helpers.events import progress

from gradtui.protocol import commands
from gradtui.protocol.agreement import Cancellation, Confirmation, Proposal
from gradtui.protocol.commands import Command
from gradtui.protocol.events import (
    CommandApplied,
    CommandProposed,
    CommandRejected,
    PauseChanged,
    ProposalAnswered,
    ProposalClosed,
    RankOutcome,
    RunEnded,
)
from gradtui.remote.job.proposals import ANSWER_S, MAX_TICK_S, MIN_LEAD, Proposals, Send


def freeze(id_: int) -> Command:
    return commands.SetTrainable(id_, "a", False)


def ticks(proposals: Proposals, begin: float, end: float) -> list[Send]:
    """Return what is sent while the time passes."""
    sends: list[Send] = []
    for number in range(int((end - begin) / MAX_TICK_S) + 1):
        sends += proposals.tick(begin + number * MAX_TICK_S)
    return sends


def two_ranks(step: int = 0) -> Proposals:
    proposals = Proposals()
    proposals._ids = itertools.count(100)
    for rank in range(2):
        proposals.joined(rank, 2)
        proposals.take(rank, progress(step), 0.0)
    return proposals


def test_next_command_waits_for_confirmed_outcome() -> None:
    proposals = two_ranks(step=7)
    sends = proposals.submit(freeze(1), 1.0)
    at_step = 7 + MIN_LEAD
    assert sends == [(rank, Proposal(100, freeze(1), at_step)) for rank in (0, 1)]
    assert proposals.submit(freeze(2), 1.0) == []
    assert proposals.take(0, ProposalAnswered(0.0, 8, 100, True), 1.1) == []
    assert proposals.take(1, ProposalAnswered(0.0, 8, 100, True), 1.2) == [
        (rank, Confirmation(0, 100)) for rank in (0, 1)
    ]
    # The other one may be unable to read what is decided.
    assert proposals.take(0, CommandApplied(0.0, at_step, freeze(1), "froze a", ()), 1.3) == [
        (rank, Confirmation(0, 100, True)) for rank in (0, 1)
    ]
    sends = proposals.take(1, CommandApplied(0.0, at_step, freeze(1), "froze a", ()), 1.4)
    assert sends == [(rank, Proposal(101, freeze(2), at_step + MIN_LEAD)) for rank in (0, 1)]
    assert [type(event) for event in proposals.events] == [CommandProposed, ProposalClosed, CommandProposed]
    assert proposals.events[1] == ProposalClosed(
        1.4, at_step, 1, True, "", (RankOutcome(0, "made"), RankOutcome(1, "made"))
    )


def test_late_confirmation_has_command_proposed_again() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    for rank in range(2):
        proposals.take(rank, ProposalAnswered(0.0, 1, 100, True), 0.1)
    sends = proposals.take(0, ProposalAnswered(0.0, 2, 100, False, "it was not confirmed in time"), 0.2)
    assert sends[-1] == (1, Proposal(101, freeze(1), 2 + 4))
    assert proposals.take(1, ProposalAnswered(0.0, 2, 100, False, "it was not confirmed in time"), 0.3) == []


def test_the_lead_grows_with_the_speed_of_training() -> None:
    proposals = two_ranks()
    proposals.take(0, progress(1_000, 1_000, at=1.0), 0.001)
    ((_, proposal), _) = proposals.submit(freeze(1), 1.0)
    assert isinstance(proposal, Proposal)
    assert proposal.at_step == 1_000 + 1_500


def test_a_rank_that_refuses_cancels_the_command_everywhere() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    sends = proposals.take(1, ProposalAnswered(0.0, 1, 100, False, "there is no a"), 0.1)
    assert sends == [(rank, Cancellation(0, 100)) for rank in (0, 1)]
    assert proposals.events[-2:] == [
        ProposalClosed(
            0.1, 1, 1, False, "rank 1: there is no a",
            (RankOutcome(0, "silent"), RankOutcome(1, "refused", "there is no a")),
        ),
        CommandRejected(0.1, 1, freeze(1), "rank 1: there is no a"),
    ]  # fmt: skip


def test_passed_step_has_command_proposed_for_later() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    sends = proposals.take(1, ProposalAnswered(0.0, 40, 100, False, "step 2 is over"), 0.1)
    assert [type(each) for _, each in sends] == [Cancellation] * 2 + [Proposal] * 2
    again = sends[-1][1]
    assert isinstance(again, Proposal)
    assert (again.id, again.command.id, again.at_step) == (101, 1, 40 + 80)


def test_rank_that_does_not_answer_cancels_command_everywhere() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    proposals.take(0, ProposalAnswered(0.0, 1, 100, True), 0.1)
    assert ticks(proposals, 0.0, ANSWER_S) == []
    sends = proposals.tick(ANSWER_S + 0.1)
    assert sends == [(rank, Cancellation(0, 100)) for rank in (0, 1)]
    closed = proposals.events[-2]
    assert isinstance(closed, ProposalClosed)
    assert closed.outcomes == (RankOutcome(0, "accepted"), RankOutcome(1, "silent"))


def test_stopped_viewer_reads_answers_before_judging_them() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    assert ticks(proposals, 3_600.0, 3_601.0) == []
    for rank in range(2):
        proposals.take(rank, ProposalAnswered(0.0, 1, 100, True), 3_601.0)
    assert ticks(proposals, 7_200.0, 7_201.0) == []
    proposals.take(0, CommandApplied(0.0, 2, freeze(1), "froze a", ()), 7_201.0)
    proposals.take(1, CommandApplied(0.0, 2, freeze(1), "froze a", ()), 7_201.0)
    assert isinstance(proposals.events[-1], ProposalClosed)


def test_vanished_rank_cancels_command_for_all() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    sends = proposals.left(1, 0.1, "its process is gone")
    assert sends == [(0, Cancellation(0, 100))]
    assert proposals.submit(freeze(2), 0.2) == []
    rejected = proposals.events[-1]
    assert isinstance(rejected, CommandRejected)
    assert rejected.reason == "1 of 2 ranks are not connected"


def test_ended_run_is_no_rank_any_more() -> None:
    proposals = two_ranks()
    proposals.take(1, RunEnded(0.0, 9, 0, None), 0.1)
    proposals.submit(freeze(1), 0.2)
    assert isinstance(proposals.events[-1], CommandRejected)


def test_held_ranks_take_command_and_resume_at_once() -> None:
    proposals = two_ranks()
    proposals.take(0, PauseChanged(0.0, 5, True), 0.0)
    proposals.submit(freeze(1), 0.0)
    proposals.take(1, PauseChanged(0.0, 5, True), 0.1)
    # The freeze was proposed for a later step, which held ranks do not reach.
    assert proposals.submit(commands.Resume(2), 0.2) == [(rank, commands.Resume(2)) for rank in (0, 1)]
    held = two_ranks()
    for rank in range(2):
        held.take(rank, PauseChanged(0.0, 5, True), 0.0)
    ((_, proposal), _) = held.submit(freeze(1), 0.1)
    assert isinstance(proposal, Proposal)
    assert proposal.at_step == 5


@pytest.mark.parametrize("metric", ["loss", "norm"])
def test_breakpoint_unreachable_for_some_ranks_is_refused(metric: str) -> None:
    proposals = two_ranks()
    assert proposals.submit(commands.SetBreakpoint(1, metric, 3.0), 0.0) == []  # type: ignore[arg-type]
    assert isinstance(proposals.events[-1], CommandRejected)
    assert len(proposals.submit(commands.SetBreakpoint(2, "step", 30), 0.0)) == 2


def test_partly_failed_change_is_not_undone() -> None:
    proposals = two_ranks()
    proposals.submit(freeze(1), 0.0)
    for rank in range(2):
        proposals.take(rank, ProposalAnswered(0.0, 1, 100, True), 0.1)
    proposals.take(0, CommandApplied(0.0, 2, freeze(1), "froze a", ()), 0.2)
    proposals.take(1, CommandRejected(0.0, 2, freeze(1), "it failed"), 0.2)
    assert proposals.submit(commands.Undo(2), 0.3) == []
    rejected = proposals.events[-1]
    assert isinstance(rejected, CommandRejected)
    assert "an earlier change" in rejected.reason
    proposals.restarted(0.4)
    for rank in range(2):
        proposals.joined(rank, 2)
    assert len(proposals.submit(commands.Undo(3), 0.5)) == 2


def not_on_all(command: Command) -> tuple[Proposals, list[Send]]:
    """Let rank 0 miss the decision on a command that rank 1 carries out. Return also what is sent then."""
    proposals = two_ranks()
    proposals.submit(command, 0.0)
    for rank in range(2):
        proposals.take(rank, ProposalAnswered(0.0, 1, 100, True), 0.1)
    assert proposals.take(0, CommandRejected(0.0, 2, command, "the store is gone"), 0.2) == []
    return proposals, proposals.take(1, CommandApplied(0.0, 2, command, "done", ()), 0.2)


def test_outcomes_of_ranks_are_said_together() -> None:
    proposals, _ = not_on_all(freeze(1))
    closed = proposals.events[-1]
    assert isinstance(closed, ProposalClosed)
    assert closed.outcomes == (RankOutcome(0, "refused", "the store is gone"), RankOutcome(1, "made"))


def test_no_rank_stays_held_while_other_trains() -> None:
    for command in (commands.Pause(1), commands.RunSteps(1, 2)):
        _, sends = not_on_all(command)
        assert sends[-2:] == [(rank, commands.Resume(0)) for rank in (0, 1)]
    _, sends = not_on_all(commands.SetBreakpoint(1, "step", 30))
    assert (1, commands.ClearBreakpoint(0, 1)) in sends
    assert not any(isinstance(sent, commands.Resume) for _, sent in not_on_all(freeze(1))[1])


def test_disputed_resume_is_sent_at_once() -> None:
    proposals = two_ranks()
    proposals.take(1, PauseChanged(0.0, 5, True), 0.0)
    proposals.submit(commands.Resume(1), 0.1)
    sends = proposals.take(0, ProposalAnswered(0.0, 5, 100, False, "the store is gone"), 0.2)
    assert sends[-2:] == [(rank, commands.Resume(1)) for rank in (0, 1)]
    assert not any(isinstance(event, CommandRejected) for event in proposals.events)


def test_a_measurement_is_of_the_lowest_rank() -> None:
    assert two_ranks().submit(commands.Watch(1, ("a",)), 0.0) == [(0, commands.Watch(1, ("a",)))]
