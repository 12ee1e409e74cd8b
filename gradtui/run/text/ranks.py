"""The ranks of a job in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.events import RankOutcome
from gradtui.run.state.parts.job import SILENT_S, Divergence, JobState, Kind, ProposalRecord, RankRecord
from gradtui.run.state.ranks.rank_figures import RankRow, Trouble
from gradtui.run.text.commands import command_text
from gradtui.run.text.units import listed, plural, seconds_text

_NAMED = 4
_BY_SIGTERM = 128 + 15
"""The exit code of a rank that its launcher ends, because another one has failed."""
_TITLES: dict[Kind, str] = {
    "models": "the models",
    "trainable": "the flags requires_grad",
    "owned": "the parameters in optimizers",
    "rates": "learning rates",
    "checksums": "values of parameters",
    "buffers": "values of buffers",
}


def ranks_text(job: JobState) -> str:
    """Return how many ranks there are, and which of them are missing, gone or silent, in a few words."""
    size = max(job.size, len(job.ranks))
    joined = len(job.ranks)
    words = [plural(size, "rank")] if joined >= size else [f"{joined} of {plural(size, 'rank')} joined"]
    gone = [each for each in _sorted(job) if each.left_reason and each.is_over]
    unseen = [each for each in _sorted(job) if each.left_reason and not each.is_over]
    silent = [each for each in job.live if each.seconds_silent(job.now) >= SILENT_S]
    if gone:
        words.append(f"{_names(gone)} gone")
    if unseen:
        words.append(f"{_names(unseen)} out of sight")
    if silent:
        longest = max(each.seconds_silent(job.now) for each in silent)
        words.append(f"{_names(silent)} silent for {seconds_text(longest).strip()}")
    return ", ".join(words)


def ranks_outcome(job: JobState) -> str:
    """Return how the ranks have ended, in a clause."""
    records = _sorted(job)
    stopped = [each for each in records if each.ended is None and each.exit_code == _BY_SIGTERM]
    failed = [each for each in records if each.exit_code and each not in stopped]
    gone = [each for each in records if each.exit_code is None and each.is_over]
    lost = [each for each in records if each.exit_code is None and not each.is_over]
    steps = sorted({each.step for each in records})
    words = [plural(len(records), "rank")]
    if len(steps) == 1:
        words.append(f"{steps[0]:,} steps each")
    elif steps:
        words.append(f"{steps[0]:,} to {steps[-1]:,} steps")
    words += [f"{_names(failed)} failed"] if failed else []
    words += [f"{_names(gone)} gone before the end"] if gone else []
    words += [f"the end of {_names(lost)} not seen"] if lost else []
    words += [f"{_names(stopped)} ended by the launcher"] if stopped else []
    if job.generation:
        words.append(f"restarted {plural(job.generation, 'time')}")
    return ", ".join(words)


def _sorted(job: JobState) -> list[RankRecord]:
    return [job.ranks[rank] for rank in sorted(job.ranks)]


def _names(records: list[RankRecord]) -> str:
    numbers = listed([str(each.rank) for each in records], _NAMED)
    return f"rank {numbers}" if len(records) == 1 else f"ranks {numbers}"


def rank_trouble_text(row: RankRow) -> str:
    """Return what is wrong with a rank in words; where nothing is, its host."""
    record = row.record
    if row.trouble is Trouble.FAILED and record.ended is None and record.exit_code == _BY_SIGTERM:
        return "ended by the launcher"
    if row.trouble is Trouble.FAILED:
        return f"failed with exit code {record.exit_code}"
    if row.trouble is Trouble.GONE:
        word = "gone" if record.is_over else "out of sight"
        return f"{word}: {record.left_reason}" if record.left_reason else word
    if row.trouble is Trouble.SILENT:
        return f"silent for {seconds_text(row.silent_seconds).strip()}: stopped, or out of reach"
    if row.trouble is Trouble.BEHIND:
        return f"{plural(row.behind, 'step')} behind"
    if row.trouble is Trouble.SLOW:
        return "slow: the others wait for it"
    return "ended" if record.ended is not None else record.host


def rank_names(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0, 1, 2`."""
    return ("rank " if len(ranks) == 1 else "ranks ") + listed([str(each) for each in ranks], _NAMED)


def uneven_text(proposal: ProposalRecord) -> str:
    """Return a message that ranks have done different things at the step for which all had accepted a command."""
    done = sorted(rank for rank, why in proposal.outcomes.items() if not why)
    left = sorted(rank for rank, why in proposal.outcomes.items() if why)
    what, why = command_text(proposal.command), proposal.outcomes[left[0]]
    return f"the ranks differ: {rank_names(done)} did what {rank_names(left)} could not after all ({what}): {why}"


def outcome_lines(outcomes: Sequence[RankOutcome]) -> list[str]:
    """Return what the ranks have done about a command, a line for those that have done the same: `ranks 0, 1: made`."""
    words = {
        "made": "made",
        "refused": "refused",
        "accepted": "accepted; nothing was changed",
        "silent": "no answer",
    }
    ranks: dict[str, list[int]] = {}
    for each in outcomes:
        did = f"{words[each.did]}: {each.reason}" if each.reason else words[each.did]
        ranks.setdefault(did, []).append(each.rank)
    return [f"{rank_names(those)}: {did}" for did, those in ranks.items()]


def between_ranks(divergence: Divergence) -> str:
    """Return which ranks differ: `between ranks 0 and 1`, or `between rank 3 and the other 3 ranks`."""
    compared, ranks = divergence.compared, divergence.ranks
    if len(compared) == 2:
        return f"between ranks {compared[0]} and {compared[1]}"
    others = len(compared) - len(ranks)
    if divergence.distinct >= len(compared) or others < 1:
        return f"between all {plural(len(compared), 'rank')}"
    other = f"rank {min(set(compared) - set(ranks))}" if others == 1 else f"the other {others} ranks"
    return f"between {rank_names(ranks)} and {other}"


def since_text(divergence: Divergence) -> str:
    """Return since when ranks differ: `since step 17`, `since a step from 17 to 32`, `since step 1, the first compared`.

    What is compared at a step are the values after it.
    """
    if divergence.equal_step is None:
        return f"since step {divergence.step:,}, the first compared"
    if divergence.equal_step + 1 >= divergence.step:
        return f"since step {divergence.step:,}"
    return f"since a step from {divergence.equal_step + 1:,} to {divergence.step:,}"


def divergence_text(divergence: Divergence) -> str:
    """Return what differs between ranks, and since when, in a clause."""
    what = f"{_TITLES[divergence.kind]} differ {between_ranks(divergence)}"
    return f"{what} {since_text(divergence)}: {listed(divergence.names)}"


def equal_again_text(kind: Kind) -> str:
    """Return that what differed is equal again."""
    return f"{_TITLES[kind]} are equal on all ranks again"
