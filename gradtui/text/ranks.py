"""The ranks of a job in words. Pure."""

from __future__ import annotations

from gradtui.state.job import SILENT_S, JobState, RankRecord
from gradtui.state.rank_figures import RankRow, Trouble
from gradtui.text.units import listed, plural, seconds_text

_NAMED = 4


def ranks_text(job: JobState) -> str:
    """Return how many ranks there are, and which of them are missing, gone or silent, in a few words."""
    size = max(job.size, len(job.ranks))
    joined = len(job.ranks)
    words = [plural(size, "rank")] if joined >= size else [f"{joined} of {plural(size, 'rank')} joined"]
    gone = [each for each in _sorted(job) if each.left_reason]
    silent = [each for each in job.live if each.seconds_silent(job.now) >= SILENT_S]
    if gone:
        words.append(f"{_names(gone)} gone")
    if silent:
        longest = max(each.seconds_silent(job.now) for each in silent)
        words.append(f"{_names(silent)} silent for {seconds_text(longest).strip()}")
    return ", ".join(words)


def ranks_outcome(job: JobState) -> str:
    """Return how the ranks have ended, in a clause."""
    records = _sorted(job)
    failed = [each for each in records if each.ended is not None and each.ended.exit_code]
    lost = [each for each in records if each.ended is None]
    steps = sorted({each.step for each in records})
    words = [plural(len(records), "rank")]
    if len(steps) == 1:
        words.append(f"{steps[0]:,} steps each")
    elif steps:
        words.append(f"{steps[0]:,} to {steps[-1]:,} steps")
    words += [f"{_names(failed)} failed"] if failed else []
    words += [f"{_names(lost)} gone before the end"] if lost else []
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
    if row.trouble is Trouble.FAILED and record.ended is not None:
        return f"failed with exit code {record.ended.exit_code}"
    if row.trouble is Trouble.GONE:
        return f"gone: {record.left_reason}" if record.left_reason else "gone"
    if row.trouble is Trouble.SILENT:
        return f"silent for {seconds_text(row.silent_seconds).strip()}: stopped, or out of reach"
    if row.trouble is Trouble.BEHIND:
        return f"{plural(row.behind, 'step')} behind"
    if row.trouble is Trouble.SLOW:
        return "slow: the others wait for it"
    return "ended" if record.ended is not None else record.host
