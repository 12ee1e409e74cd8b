"""Rows of the table of rules: a state, and the facts that a rule reports of it, or that it reports nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradtui.run.diagnostics import Match
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.state.run_state import RunState

Facts = Mapping[str, Any]
"""What a match has: fields of `Match` by name. `numbers` is a part of its evidence, `file` the name of the file of its line."""
Build = Callable[[], RunState]


@dataclass(frozen=True)
class Row:
    """One state of a run, and what a rule reports of it."""

    case: str
    build: Build
    matches: tuple[Facts, ...]
    """The facts of each match, in the order of the matches. Empty: the rule must not report."""
    silent: tuple[str, ...] = ()
    """Ids of other rules that must not report of the same state."""
    lacked: str | None = None
    """What the rule says that the run lacked; empty: nothing. None: not looked at."""


Table = Mapping[str, tuple[Row, ...]]
"""Rows by the id of the rule."""


def reports(
    case: str, build: Build, *matches: Facts, silent: tuple[str, ...] = (), lacked: str | None = None, **facts: Any
) -> Row:
    """Return a row in which the rule has one match with these facts, or exactly the given matches."""
    assert not (matches and facts), case
    return Row(case, build, matches or (facts,), silent, lacked)


def quiet(case: str, build: Build, *, silent: tuple[str, ...] = (), lacked: str | None = None) -> Row:
    """Return a row in which the rule must not report."""
    return Row(case, build, (), silent, lacked)


def matches(rule: str, state: RunState) -> list[Match]:
    """Return what a rule says about a state."""
    return list(rule_named(rule).check(state))


def check_row(rule: str, row: Row) -> None:
    """Assert that the rule reports of the state of the row what the row says, and nothing else."""
    state = row.build()
    found = matches(rule, state)
    assert len(found) == len(row.matches), found
    for match, facts in zip(found, row.matches):
        for name, expected in facts.items():
            assert _fact(match, name, expected) == expected, (name, match)
    for other in row.silent:
        assert matches(other, state) == [], other
    if row.lacked is not None:
        assert (rule_named(rule).needs(state) or "") == row.lacked


def _fact(match: Match, name: str, expected: Any) -> Any:
    if name == "numbers":
        return {key: match.evidence[key] for key in expected}
    if name == "file":
        return Path(match.site.file).name if match.site is not None else None
    return getattr(match, name)
