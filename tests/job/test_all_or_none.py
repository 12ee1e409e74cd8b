"""All ranks carry out a command at the same step, or none does, whatever is late, lost or stopped."""

from __future__ import annotations

import random

import pytest
from helpers.simulated_job import Job
from hypothesis import given
from hypothesis import strategies as st

from gradtui.probe.commands.boundary import agreement


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the store answers, no rank goes on without knowing what was decided."""
    monkeypatch.setattr(agreement, "PIECES", 1 << 30)


def check(job: Job) -> None:
    """All ranks of each generation have carried out the same, at the same steps."""
    for ranks in job.over:
        least = min(rank.step - rank.is_waiting for rank in ranks)
        done = [[each for each in rank.carried_out if each[0] <= least] for rank in ranks]
        assert all(each == done[0] for each in done)
        commands = [command for _, command in done[0]]
        assert len(commands) == len(set(commands))
        assert not {job.paths[command] for command in commands} & {rank.refuses for rank in ranks}
        assert not any(rank.missed for rank in ranks)


@given(st.integers(0, 1 << 30), st.integers(1, 4), st.booleans())
def test_ranks_carry_out_same_commands_at_same_steps(seed: int, size: int, is_slow: bool) -> None:
    job = Job(random.Random(seed), size, is_slow=is_slow)
    for _ in range(1_500):
        job.act()
    check(job)


@pytest.mark.parametrize("is_slow", [False, True])
def test_commands_do_get_carried_out(is_slow: bool) -> None:
    """The test above would also hold for ranks that do nothing."""
    done = 0
    for seed in range(20):
        job = Job(random.Random(seed), 3, is_slow=is_slow)
        for _ in range(1_500):
            job.act()
        done += sum(len(rank.carried_out) for ranks in job.over for rank in ranks)
    assert done > (30 if is_slow else 60)


def test_rank_without_store_misses_one_change_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "PIECES", 12)
    missing = 0
    for seed in range(80):
        job = Job(random.Random(seed), 3, is_slow=True, has_losses=False)
        (first, second, third), dies_at = job.ranks.values(), 300 + seed
        for number in range(1_500):
            job.act()
            if number == dies_at:
                first.store.is_down = True
                first.store.calls.clear()
        least = min(rank.step - rank.is_waiting for rank in job.ranks.values())
        done = [[each for each in rank.carried_out if each[0] <= least] for rank in (first, second, third)]
        if second.missed or third.missed:
            # They have been stopped, or the store was slow to them, for as long as the patience of this test.
            continue
        assert done[1] == done[2]
        missed = [each for each in done[1] if each not in done[0]]
        missing += len(missed)
        assert [step for step, _ in missed] in ([], first.missed)
        assert all(step <= (first.missed or [least])[0] for step, _ in done[1])
    assert missing < 8, "most often the viewer tells the rank what another one has read"
