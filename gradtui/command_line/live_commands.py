"""Subcommands that ask live runs: `runs`, `status`, `state`, `findings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from gradtui.command_line.json_output import print_json
from gradtui.command_line.network_options import run_options
from gradtui.configuration.choices import USAGE_ERROR
from gradtui.system.printable import printable

if TYPE_CHECKING:
    from gradtui.remote.live.client import RunChoice

HELP_NAMES = ["-h", "--help"]
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class LiveCommand(click.Command):
    """A subcommand that asks a live run. With `--json` an error is an object on stdout, so that programs read one stream."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not ctx.params.get("as_json"):
                raise
            import json

            from gradtui.remote.live.client import LiveError

            code = error.code if isinstance(error, LiveError) else "usage"
            click.echo(json.dumps({"error": " ".join(error.message.split()), "code": code}))
            raise SystemExit(USAGE_ERROR) from None


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@JSON
def _runs(as_json: bool) -> None:
    """List the live runs of this user on this machine."""
    from gradtui.remote.live.client import live_runs

    found = live_runs()
    if as_json:
        print_json(found)
        return
    rows: list[tuple[str, ...]] = [("id", "script", "step", "step age", "phase", "findings", "since")]
    rows += [_row(each) for each in found]
    if not found:
        click.echo("no live run")
        return
    widths = [max(len(printable(str(row[at]))) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(f"{printable(str(cell)):<{width}}" for cell, width in zip(row, widths)).rstrip())


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in run:
        return run["id"], "—", "—", "—", "does not answer", "—", "—"
    return (
        run["id"],
        run["script"],
        f"{run['step']:,}",
        _status_text(_seconds(run["step_age"])),
        _phase(run),
        str(run["findings"]),
        run["since"],
    )


def _seconds(seconds: float | None) -> str | None:
    from gradtui.run.text.units import seconds_text

    return seconds_text(seconds).strip() if seconds is not None else None


def _phase(status: Mapping[str, Any]) -> str:
    from gradtui.run.text.units import plural

    phase = "ended" if status["ended"] else "paused" if status["paused"] else str(status["phase"])
    silent = len(status["silent_ranks"])
    return f"{phase}, {plural(silent, 'rank')} silent" if silent else phase


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@JSON
def _status(run: RunChoice, as_json: bool) -> None:
    """Print what a live run does now."""
    from gradtui.remote.live.client import asked

    answer = asked(run, "status")
    if as_json:
        print_json(answer)
        return
    silent = [f"{each['rank']} for {_seconds(each['seconds'])}" for each in answer.pop("silent_ranks")]
    shown = {
        **answer,
        "step_age": _seconds(answer["step_age"]),
        **({"silent_ranks": ", ".join(silent)} if silent else {}),
    }
    for name, value in shown.items():
        click.echo(f"{name:<16} {_status_text(value)}")


def _status_text(value: object) -> str:
    """Return a value of a status as people write it; JSON has all its digits."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as always.")
def _state(run: RunChoice, as_json: bool) -> None:  # noqa: ARG001 - there is no other format
    """Print the summary of a live run as JSON."""
    from gradtui.remote.live.client import asked

    print_json(asked(run, "state"))


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@JSON
def _findings(run: RunChoice, as_json: bool) -> None:
    """Print the findings of a live run, the gravest first."""
    from gradtui.remote.live.client import asked

    found = asked(run, "findings")
    if as_json:
        print_json(found)
        return
    for each in found:
        state = "" if each["cleared_step"] is None else " (cleared)"
        click.echo(printable(f"{each['rule']} {each['level']} {each['status']}{state}: {each['message']}"))
    if not found:
        click.echo("no finding")


COMMANDS = {"runs": _runs, "status": _status, "state": _state, "findings": _findings}
