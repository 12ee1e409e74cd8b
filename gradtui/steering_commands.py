"""Subcommands that follow and steer live runs: `attach`, `do`, `tail`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from gradtui.configuration import SETTINGS
from gradtui.live_commands import HELP_NAMES, JSON, RUN, asked, run_named
from gradtui.options import settings_in_force
from gradtui.printable import printable
from gradtui.protocol.codec import BadEntry, from_words, words_of
from gradtui.protocol.commands import Intervention
from gradtui.protocol.event_rows import EventReader
from gradtui.protocol.events import CommandApplied, CommandRejected, Event, ReceiptTaken, RunEnded

REFUSED = 3
"""The exit code of `gradtui do --wait` if the run refused the command, or ended before it."""


@click.command(context_settings={"help_option_names": HELP_NAMES})
@RUN
def _attach(id_: str | None) -> None:
    """Open the dashboard of a live run in this terminal. Leaving it leaves the run as it is."""
    from gradtui.attach_screen import attach
    from gradtui.runner.terminal import why_no_screen
    from gradtui.serving import NoAnswerError, socket_directory

    trouble = why_no_screen()
    if trouble is not None:
        raise click.UsageError(f"no dashboard here: {trouble}; gradtui status prints what the run does")
    settings = settings_in_force(None, {setting.name.replace("-", "_"): None for setting in SETTINGS})
    try:
        attach(socket_directory(), run_named(id_), settings)
    except (NoAnswerError, OSError) as error:
        raise click.UsageError(str(error)) from None


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": HELP_NAMES},
    epilog="COMMAND is a word of a schedule: freeze PATH, unfreeze PATH, train-only SELECTION, checkpoint PATH, set-lr RATE, "
    "pause, resume, step N, undo, stop, and so on; further values as field=value. Exit code: 0 when it was sent, with --wait "
    f"when it was applied, {REFUSED} if the run refused it, 2 if it cannot be sent.",
)
@RUN
@JSON
@click.option("--wait", is_flag=True, help="Wait for the answer of the run, and for the receipt of a change.")
@click.option(
    "--client", default=f"gradtui do ({os.getpid()})", help="Who does it, for the schedule.", show_default=False
)
@click.argument("words", nargs=-1, required=True, metavar="COMMAND [VALUE]...")
def _do(id_: str | None, as_json: bool, wait: bool, client: str, words: tuple[str, ...]) -> None:
    """Send a command to a live run: gradtui do freeze image_encoder."""
    try:
        command = words_of(words)
        from_words(command, 0)
    except BadEntry as bad:
        raise click.UsageError(str(bad)) from None
    name = run_named(id_)
    sent = asked(name, "do", command=command, client=client)
    answer: dict[str, Any] = {"id": sent["id"], **command}
    if wait:
        answer |= _result(name, sent)
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    else:
        click.echo(printable(str(answer.get("refused") or answer.get("text") or "sent")))
        if "receipt" in answer:
            click.echo(printable(json.dumps(answer["receipt"])))
    if "refused" in answer:
        raise SystemExit(REFUSED)


def _result(name: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for what became of a command."""
    found: dict[str, Any] = {}
    for _, event in _events(name, sent["cursor"], follow=True):
        if isinstance(event, RunEnded):
            return found or {"refused": "the run has ended"}
        if isinstance(event, CommandRejected) and event.command.id == sent["id"]:
            return {"refused": event.reason, "step": event.step}
        if isinstance(event, CommandApplied) and event.command.id == sent["id"]:
            found = {"text": event.text, "step": event.step}
            if not isinstance(event.command, Intervention):
                return found
        if isinstance(event, ReceiptTaken) and event.command == sent["id"]:
            return {**found, "receipt": _plain(event)}
    return found or {"refused": "the connection to the run is lost"}


@click.command(context_settings={"help_option_names": HELP_NAMES})
@RUN
@click.option("--since", default=0, metavar="N", help="Only the events after the cursor N. Each line has its cursor.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def _tail(id_: str | None, since: int, follow: bool, as_json: bool) -> None:
    """Print what has happened in a live run. Measurements are left out: gradtui state has them."""
    for cursor, event in _events(run_named(id_), since, follow=follow):
        if as_json:
            click.echo(json.dumps({"cursor": cursor, "event": type(event).__name__, **_plain(event)}))
        else:
            fields = {name: value for name, value in _plain(event).items() if name not in ("at", "step") and value}
            text = json.dumps(fields)
            click.echo(printable(f"{cursor:>6}  step {event.step:,}  {type(event).__name__}  {text[:_LONGEST]}"))


_LONGEST = 160


def _events(name: str, since: int, *, follow: bool) -> Iterator[tuple[int, Event]]:
    """Yield the events of a run after a cursor, each with its own."""
    from gradtui.serving import Client, NoAnswerError, socket_directory

    reader = EventReader({})
    try:
        with Client(socket_directory(), name) as client:
            first = client.ask("tail", since=since, follow=follow)
            if first["lost"]:
                click.echo(f"gradtui: {first['lost']:,} older events are no longer there", err=True)
            waiting: Event | None = None
            for line in client.lines():
                event = reader.read(line)
                if event is not None:
                    waiting = event
                elif waiting is not None and "cursor" in reader.header:
                    yield int(reader.header.pop("cursor")), waiting
                    waiting = None
    except (NoAnswerError, OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def _plain(event: Event) -> dict[str, Any]:
    """Return an event as JSON with the names of its fields."""
    from gradtui.protocol.json_values import named

    fields: dict[str, Any] = named(event)
    return fields


STEERING_COMMANDS: dict[str, click.Command] = {"attach": _attach, "do": _do, "tail": _tail}
