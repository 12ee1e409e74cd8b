"""Ask live runs from another process: what the subcommands and the MCP server share.

All functions raise `click.UsageError` with one line if there is no such run, or if it does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

import click

from gradtui.protocol.commands import Intervention
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import CommandApplied, CommandRejected, Event, ReceiptTaken, RunEnded
from gradtui.protocol.json_values import named


def live_runs() -> list[dict[str, Any]]:
    """Return the status of each live run, the newest first."""
    from gradtui import serving

    try:
        return serving.live_runs(serving.socket_directory())
    except OSError as error:
        raise click.UsageError(f"no directory of live runs: {error.strerror or error}") from None


def run_named(id_: str | None) -> str:
    """Return the id of a run; without one that of the only live run."""
    if id_ is None:
        live = [str(each["id"]) for each in live_runs()]
        if len(live) != 1:
            several = f"{len(live)} runs are live; give one by --run: {', '.join(live)}"
            raise click.UsageError(several if live else "no live run")
        id_ = live[0]
    if "/" in id_:
        raise click.UsageError(f"{id_!r} is no id of a run; gradtui runs lists them")
    return id_


def asked(id_: str | None, what: str, **more: Any) -> Any:
    """Return the answer of a run."""
    from gradtui.serving import NoAnswerError, ask, socket_directory

    name = run_named(id_)
    try:
        return ask(socket_directory(), name, what, **more)
    except (NoAnswerError, OSError) as error:
        raise click.UsageError(str(error)) from None


def events_after(
    name: str,
    since: int,
    *,
    lost: Callable[[int], None] = lambda _count: None,
    follow: bool = False,
    seconds: float | None = None,
) -> Iterator[tuple[int, Event]]:
    """Yield the events of a run after a cursor, each with its own.

    Args:
        name: the id of the run.
        since: the cursor; 0 for all.
        lost: is told how many events after the cursor the run no longer has, if any.
        follow: go on until the run ends.
        seconds: end after this time; None for no such end.
    """
    from gradtui.serving import Client, NoAnswerError, socket_directory

    reader, began = EventReader({}), monotonic()
    try:
        with Client(socket_directory(), name) as client:
            first = client.ask("tail", since=since, follow=follow)
            if first["lost"]:
                lost(first["lost"])
            waiting: Event | None = None
            for line in client.lines():
                event = reader.read(line)
                if event is not None:
                    waiting = event
                elif waiting is not None and "cursor" in reader.header:
                    yield int(reader.header.pop("cursor")), waiting
                    waiting = None
                if seconds is not None and monotonic() - began > seconds:
                    return
    except (NoAnswerError, OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def result_of(name: str, sent: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """Wait for what became of a command, for the receipt too if it changes the script's objects.

    Args:
        name: the id of the run.
        sent: its answer to the command.
        seconds: the longest to wait; None for no limit.

    Returns:
        `text` and `step` of what was done, `receipt` if there is one, or `refused` with the reason. Empty if the time is over.
    """
    found: dict[str, Any] = {}
    for _, event in events_after(name, sent["cursor"], follow=True, seconds=seconds):
        if isinstance(event, RunEnded):
            return found or {"refused": "the run has ended"}
        if isinstance(event, CommandRejected) and event.command.id == sent["id"]:
            return {"refused": event.reason, "step": event.step}
        if isinstance(event, CommandApplied) and event.command.id == sent["id"]:
            found = {"text": event.text, "step": event.step}
            if not isinstance(event.command, Intervention):
                return found
        if isinstance(event, ReceiptTaken) and event.command == sent["id"]:
            return {**found, "receipt": fields_of_event(event)}
    return found


def fields_of_event(event: Event) -> dict[str, Any]:
    """Return an event as JSON with the names of its fields."""
    fields: dict[str, Any] = named(event)
    return fields
