"""Subcommands that follow and steer live runs: `attach`, `batch`, `do`, `mcp`, `tail`, `why`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gradtui.command_line.json_output import print_json
from gradtui.command_line.live_commands import HELP_NAMES, JSON, LiveCommand
from gradtui.command_line.network_options import SERVE, run_options, serve_on
from gradtui.command_line.options import settings_in_force, viewing_options
from gradtui.protocol.bad_entry import BadEntry
from gradtui.system.printable import printable

if TYPE_CHECKING:
    from gradtui.remote.live.client import RunChoice

REFUSED = 3
"""The exit code of `gradtui do` if the run refused the command, or ended before it."""
_ANSWER_S = 2.0
"""Seconds to wait for the answer without `--wait`: a run answers at its next step boundary."""
_SENT = "sent; the run answers at its next step boundary (--wait waits for that)"
_SENT_TRY = "sent; the run answers when all sides have made their steps (--wait waits for that)"


class _ProcessNumber(click.IntRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no number of a process; --run ID names a run", param, ctx)


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@SERVE
@viewing_options()
@click.argument("process", metavar="[PID]", required=False, type=_ProcessNumber(1))
def _attach(run: RunChoice, serve: str | None, process: int | None, **options: Any) -> None:
    """Open the dashboard of a live run in this terminal. Leaving it leaves the run as it is.

    PID is the number of the run's process, in place of --run. gradtui is added to a Python 3.14 that runs without it, until you
    leave.
    """
    if process is not None and (run.id is not None or run.connect is not None):
        raise click.UsageError("PID is for this machine, and in place of --run and --connect")
    found = _run_of(process) if process is not None else run
    if found is not None:
        _show(found, serve, options)
        return
    assert process is not None
    from gradtui.launch.added_run import added_to
    from gradtui.remote.live.client import RunChoice

    with added_to(process, _objection(serve)) as address:
        _show(RunChoice(socket=address.path), serve, options)


def _show(run: RunChoice, serve: str | None, options: dict[str, Any]) -> None:
    """Show the dashboard of a run until the user leaves it."""
    from gradtui.remote.live.client import live_error
    from gradtui.remote.serving.addresses import BadAddressError
    from gradtui.remote.serving.client import NoAnswerError

    if serve is not None:
        from gradtui.launch.page.process import serve_attached

        where = serve_on(serve, is_insecure=run.is_insecure)
        given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
        try:
            assert where is not None
            serve_attached(where, run, given)
        except BadAddressError as error:
            raise click.UsageError(str(error)) from None
        except (NoAnswerError, OSError) as error:
            raise live_error(error) from None
        return
    objection = _objection(serve)
    if objection is not None:
        raise click.UsageError(objection)
    from gradtui.launch.attach_screen import attach
    from gradtui.launch.page.viewer import VIEWER, attach_for_page

    try:
        if os.environ.get(VIEWER):
            attach_for_page(run.address(), settings_in_force(None, options))
        else:
            attach(run.address(), settings_in_force(None, options), returns=run.socket is None)
    except (NoAnswerError, OSError) as error:
        raise live_error(error) from None


def _objection(serve: str | None) -> str | None:
    """Return why there can be no dashboard in this terminal; None if there can, or if it is not wanted here."""
    from gradtui.launch.page.viewer import VIEWER
    from gradtui.runner.terminal import why_no_screen

    trouble = why_no_screen() if serve is None and not os.environ.get(VIEWER) else None
    return f"no dashboard here: {trouble}; gradtui status prints what the run does" if trouble is not None else None


def _run_of(process: int) -> RunChoice | None:
    """Return the choice of the run in a process; None if there is none."""
    from gradtui.remote.live.client import RunChoice, live_runs

    found = [str(each["id"]) for each in live_runs() if str(each["id"]).startswith(f"{process}-")]
    return RunChoice(found[0]) if found else None


@click.command(
    cls=LiveCommand,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": HELP_NAMES},
    epilog="COMMAND is a word of a schedule: freeze PATH, unfreeze PATH, train-only SELECTION, checkpoint PATH, "
    "set-lr [PATH] RATE, pause, resume, step N, undo, keep, return STEP, try 'freeze PATH', stop, and so on; further values "
    f"as field=value. Exit code: 0 when it was applied, or sent if the run has not answered in {_ANSWER_S:g} seconds (--wait "
    f"waits on), {REFUSED} if the run refused it, 2 if it cannot be sent.",
)
@run_options
@JSON
@click.option("--dry-run", is_flag=True, help="Change nothing: print what the command would change, or why not.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait as long as it takes for the answer of the run (of all its ranks), and for the receipt of a change.",
)
@click.option(
    "--rows",
    metavar="ROWS",
    help="Of freeze and unfreeze: these rows of one parameter, such as 0:32000, 5, 32000: or 0:10,20:30.",
)
@click.option("--to", "file", metavar="FILE", help="Of keep and the save- commands: the file to write.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--steps", metavar="N", help="Of try: the optimizer steps of each side.  [default: 50]")
@click.option(
    "--keep",
    metavar="SIDE",
    help="Of try: with what the run continues: none (the default), change, better (if the loss is surely lower), or ask.",
)
@click.option("--no-held-aside", is_flag=True, help="Of try: no steps on the data that the script evaluates with.")
@click.option(
    "--client", default=f"gradtui do ({os.getpid()})", help="Who does it, for the schedule.", show_default=False
)
@click.argument("words", nargs=-1, required=True, metavar="COMMAND [VALUE]...")
def _do(
    run: RunChoice,
    as_json: bool,
    dry_run: bool,
    wait: bool,
    client: str,
    words: tuple[str, ...],
    **options: Any,
) -> None:
    """Send a command to a live run: gradtui do freeze image_encoder."""
    from gradtui.protocol.codec import from_words, words_of
    from gradtui.protocol.events import RankOutcome
    from gradtui.remote.live.client import LiveError, asked_at, from_here, result_of
    from gradtui.run.state.changes.objections import in_full
    from gradtui.run.text.ranks import outcome_lines

    try:
        command = from_here(words_of((*words, *_options_of_command(**options))), run)
        from_words(in_full(command, None), 0)
    except BadEntry as bad:
        raise LiveError("bad_command", str(bad)) from None
    address = run.address()
    if dry_run:
        _preview(asked_at(address, "preview", command=command), as_json=as_json)
        return
    if command["command"] == "keep_state" and not as_json:
        for line in asked_at(address, "preview", command=command)["lines"]:
            click.echo(printable(line))
    sent = asked_at(address, "do", command=command, client=client)
    answer: dict[str, Any] = {"id": sent.get("id"), **command}
    answer |= result_of(address, sent, None if wait else _ANSWER_S, measured=wait)
    if as_json:
        print_json(answer)
    else:
        sent_words = _SENT_TRY if command["command"] == "try_change" else _SENT
        click.echo(printable(str(answer.get("refused") or answer.get("text") or sent_words)))
        for line in outcome_lines([RankOutcome(**each) for each in answer.get("ranks", ())]):
            click.echo(printable(line))
        if "receipt" in answer:
            click.echo(printable(str(answer["receipt"]["text"])))
        elif "not_measured" in answer:
            click.echo(printable(f"not measured: {answer['not_measured']}"))
    if "refused" in answer:
        raise SystemExit(REFUSED)


def _options_of_command(
    rows: str | None, file: str | None, steps: str | None, keep: str | None, *, force: bool, no_held_aside: bool
) -> list[str]:
    """Return the options that belong to the command itself, as `words_of` reads them."""
    named = [f"{name}={value}" for name, value in (("steps", steps), ("keep", keep)) if value is not None]
    given = [("--rows", rows), ("--to", file)]
    return [
        *named,
        *(word for name, value in given if value is not None for word in (name, value)),
        *["held_aside=false"] * no_held_aside,
        *["--force"] * force,
    ]


def _preview(found: dict[str, Any], *, as_json: bool) -> None:
    """Print what a command would change, and end with the exit code of a refusal if it would be refused."""
    from gradtui.run.text.units import listed

    if as_json:
        print_json(found)
    elif found["refused"] is not None:
        click.echo(printable(found["refused"]))
    else:
        click.echo(printable(f"would {found['text']}"))
        for name, words in (("stops", "stop training"), ("starts", "begin to train")):
            if found[name]:
                click.echo(printable(f"  {words}: {listed(found[name], _NAMED)}"))
        for line in found["lines"]:
            click.echo(printable(f"  {line.strip()}"))
    if found["refused"] is not None:
        raise SystemExit(REFUSED)


_NAMED = 4


@click.command(
    cls=LiveCommand,
    context_settings={"help_option_names": HELP_NAMES},
    epilog=f"Exit code: 0 when the file was written, or the request sent if the run has not answered in {_ANSWER_S:g} seconds "
    f"(--wait waits on), {REFUSED} if the batch no longer lives or the file cannot be written, 2 if no run can be asked.",
)
@run_options
@JSON
@click.option(
    "--to", "file", default="", metavar="FILE", help="The file; without it the run names a new one beside its log."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--wait", is_flag=True, help="Wait as long as it takes for the answer of the run.")
def _batch(run: RunChoice, as_json: bool, file: str, force: bool, wait: bool) -> None:
    """Write the batch of the newest NaN or spike of a live run to a file for torch.load, with the random states before it."""
    from gradtui.remote.live.client import asked_at, from_here, result_of

    command = from_here({"command": "save_batch", "file": file, "replace": force}, run)
    address = run.address()
    sent = asked_at(address, "do", command=command, client=f"gradtui batch ({os.getpid()})")
    answer = {"id": sent.get("id"), **command, **result_of(address, sent, None if wait else _ANSWER_S, measured=False)}
    if as_json:
        print_json(answer)
    else:
        click.echo(printable(str(answer.get("refused") or answer.get("text") or _SENT)))
    if "refused" in answer:
        raise SystemExit(REFUSED)


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@click.option("--since", default=0, metavar="N", help="Only the events after the cursor N. Each line has its cursor.")
@click.option("--follow", "-f", is_flag=True, help="Continue until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def _tail(run: RunChoice, since: int, follow: bool, as_json: bool) -> None:
    """Print what has happened in a live run. Measurements are left out: gradtui state has them."""
    import json

    from gradtui.remote.live.client import events_after, fields_of_event

    for cursor, event in events_after(run.address(), since, lost=_say_lost, follow=follow):
        if as_json:
            click.echo(json.dumps({"cursor": cursor, "event": type(event).__name__, **fields_of_event(event)}))
        else:
            fields = {
                name: value for name, value in fields_of_event(event).items() if name not in ("at", "step") and value
            }
            text = json.dumps(fields)
            click.echo(printable(f"{cursor:>6}  step {event.step:,}  {type(event).__name__}  {text[:_MAX]}"))


_MAX = 160


def _say_lost(count: int) -> None:
    click.echo(f"gradtui: {count:,} older events are no longer there", err=True)


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@JSON
@click.option("--all", "in_full", is_flag=True, help="Print every fact that the page of the row has on the screen.")
@click.argument("path")
def _why(run: RunChoice, as_json: bool, in_full: bool, path: str) -> None:
    """Print what autograd does with a parameter or module of a live run, and why."""
    from gradtui.remote.live.client import asked

    found = asked(run, "why", path=path, all=in_full)
    if as_json:
        print_json(found)
        return
    label, lines = "", [f"{found['path'] or 'the model'}: {found['state']}", *found["why"]]
    for each in found.get("page", ()):
        lines.append(f"{'' if each['label'] == label else each['label']:<12}{each['text']}")
        label = each["label"]
    for line in lines:
        click.echo(printable(line))


@click.command(cls=LiveCommand, context_settings={"help_option_names": HELP_NAMES})
@run_options
@click.option("--allow-write", is_flag=True, help="Offer the tool that changes a run, too.")
def _mcp(run: RunChoice, allow_write: bool) -> None:
    """Offer live runs to a coding agent: an MCP server on stdio. It needs pip install 'gradtui[mcp]'."""
    try:
        from gradtui.remote.live.mcp_server import serve
    except ModuleNotFoundError as missing:
        from gradtui.system.optional_packages import install_words

        raise click.UsageError(f"{missing.name} is missing: {install_words('mcp', 'mcp')}") from None
    serve(run, allow_write=allow_write)


COMMANDS: dict[str, click.Command] = {
    "attach": _attach,
    "batch": _batch,
    "do": _do,
    "mcp": _mcp,
    "tail": _tail,
    "why": _why,
}
