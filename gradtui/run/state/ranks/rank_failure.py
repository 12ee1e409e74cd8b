"""Which rank of a job failed first, and of what. Pure."""

from __future__ import annotations

import signal

from gradtui.dataclass import dataclass
from gradtui.protocol.script_lines import Uncaught
from gradtui.run.state.parts.job import JobState, RankRecord


@dataclass(frozen=True)
class Failure:
    """The failure of a rank.

    Args:
        rank: its number.
        headline: the error in one line.
        traceback: its lines; empty if there is none.
        uncaught: the exception, if the rank itself has said it.
    """

    rank: int
    headline: str
    traceback: tuple[str, ...] = ()
    uncaught: Uncaught | None = None

    @property
    def words(self) -> str:
        """The rank and the error in one line."""
        return f"rank {self.rank}: {self.headline}"


def first_failure(job: JobState, *, is_over: bool = False) -> Failure | None:
    """Return the failure that came first, None if there is none. `is_over`: the launcher has ended.

    The viewer knows the order of what ranks say themselves better than the launcher, which looks at its ranks now and then.
    """
    blamed = {each.rank for each in job.failures}
    # A launcher that is interrupted ends its ranks, and blames none of them.
    counts = [each for each in job.ranks.values() if each.ended is not None or not is_over or each.rank in blamed]
    failed = [(at, each.rank, each) for each in counts if (at := _failed_at(each)) is not None]
    if job.failures:
        first = job.failures[0]
        record = job.ranks.get(first.rank)
        # A rank out of sight has failed without the viewer's knowledge.
        if not failed or record is None or _is_unseen(record):
            lines = _lines(first.message)
            has_traceback = first.message.startswith("Traceback")
            words = lines[-1].strip() if has_traceback else _how(first.exit_code) or f"exit code {first.exit_code}"
            return Failure(first.rank, words, lines if has_traceback else ())
    if not failed:
        return None
    record = min(failed)[2]
    if record.ended is not None and record.ended.headline:
        ended = record.ended
        return Failure(record.rank, ended.headline, _lines(ended.error or ""), ended.uncaught)
    if record.exit_code is None:
        return Failure(record.rank, record.left_reason)
    return Failure(record.rank, _how(record.exit_code) or f"exit code {record.exit_code}")


def _failed_at(record: RankRecord) -> float | None:
    """Return when a rank has failed; None if it has not, or if that is not known."""
    if record.ended is not None:
        return record.heard_at if record.ended.exit_code else None
    return record.left_at if record.is_over and record.left_reason else None


def _is_unseen(record: RankRecord) -> bool:
    return record.ended is None and not record.is_over


def _how(code: int) -> str:
    """Return how a process was killed, in words; empty if it was not."""
    try:
        return f"killed by {signal.Signals(code - 128).name}" if code > 128 else ""
    except ValueError:
        return ""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())
