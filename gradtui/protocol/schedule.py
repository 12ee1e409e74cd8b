"""A schedule: commands and the step at which each takes effect, as plain data and as the tables of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.protocol.codec import BadEntry, from_words, shown, to_words
from gradtui.protocol.commands import (
    ClearBreakpoint,
    Command,
    Pause,
    PauseAtBadStep,
    Resume,
    RunSteps,
    RunTo,
    SetBreakpoint,
    ShowRank,
    Watch,
)

VERSION = 1
_OF_A_PERSON = (ClearBreakpoint, Pause, PauseAtBadStep, Resume, RunSteps, RunTo, SetBreakpoint, ShowRank, Watch)
"""Commands that a schedule cannot contain: they change nothing, and without a screen the user could neither resume a held run
nor watch gradients."""


@dataclass(frozen=True)
class Scheduled:
    """A command that takes effect when `step` optimizer steps have been executed, before the next one begins."""

    step: int
    command: Command
    skipped: int = 0
    """Number of steps that a loss scaler must have skipped since `step`."""
    late: bool = False
    """The parameters or modules that it names may exist only then: gradtui does not check for them before training begins."""
    title: str = ""
    """The entry's name in messages: `entry 2 (step 30)`."""


def is_schedulable(command: Command) -> bool:
    """Return whether a schedule can contain this command."""
    return not isinstance(command, _OF_A_PERSON)


def to_table(entry: Scheduled) -> dict[str, Any]:
    """Return an entry as a table of a schedule file, without default values."""
    extra = {"skipped": entry.skipped} if entry.skipped else {}
    late = {"late": True} if entry.late else {}
    origin = {"origin": entry.command.origin} if entry.command.origin else {}
    return {"step": entry.step, **extra, **late, **to_words(entry.command), **origin}


def read(document: Mapping[str, Any]) -> tuple[Scheduled, ...]:
    """Return the entries of a schedule file's content. Raises `BadEntry` with one line that names the entry."""
    unknown = sorted(document.keys() - {"version", "do"})
    if unknown:
        raise BadEntry(f"there is no {shown(unknown[0])} in a schedule; it has version and [[do]] tables")
    version = document.get("version", VERSION)
    if version != VERSION:
        raise BadEntry(f"version {shown(version)} is not known; this program reads version {VERSION}")
    tables = document.get("do", [])
    if not isinstance(tables, list):
        raise BadEntry("do is not a list of tables; write [[do]] above each entry")
    return tuple(_entry(number, table) for number, table in enumerate(tables, 1))


def _entry(number: int, table: Any) -> Scheduled:
    title = f"entry {number}"
    if not isinstance(table, dict):
        raise BadEntry(f"{title}: it is not a table; write [[do]] above each entry")
    if "step" not in table:
        raise BadEntry(f"{title}: step is missing")
    step = _count(title, "step", table["step"])
    title = f"{title} (step {step:,})"
    skipped = _count(title, "skipped", table.get("skipped", 0))
    late = table.get("late", False)
    if not isinstance(late, bool):
        raise BadEntry(f"{title}: late is true or false, not {shown(late)}")
    origin = table.get("origin", "")
    if not isinstance(origin, str):
        raise BadEntry(f"{title}: origin is a text in quotes, not {shown(origin)}")
    words = {name: value for name, value in table.items() if name not in ("step", "skipped", "late", "origin")}
    try:
        # Negative ids, because the commands of a viewer have ids from 1 on.
        command = replace(from_words(words, -number), origin=origin)
    except BadEntry as bad:
        raise BadEntry(f"{title}: {bad}") from None
    if not is_schedulable(command):
        raise BadEntry(f"{title}: {words['command']!r} is for a person at the screen, and changes nothing")
    return Scheduled(step, command, skipped, late, title)


def _count(title: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadEntry(f"{title}: {name} is a whole number from 0 on, not {shown(value)}")
    return value
