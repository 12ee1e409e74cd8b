"""Parse the command line into one frozen `Settings`. Main thread, before any slow import."""

from __future__ import annotations

import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gradtui import __version__
from gradtui.options import (
    FILE,
    MODULE_HELP,
    SUMMARY,
    fence_module_arguments,
    parse_steps,
    rule_options,
    selected_ids,
    target_of,
)
from gradtui.printable import write_line
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.schedule import Scheduled
from gradtui.settings import USAGE_ERROR, Settings
from gradtui.subcommands import SUBCOMMANDS

_EPILOG = """\
\b
gradtui check SCRIPT   run the first steps without a dashboard, and report what is wrong
gradtui explain GT204  describe a rule of check
gradtui rules          list the rules

A first word that is a subcommand is the subcommand: gradtui ./check runs a file named check.

Everything after SCRIPT, or after -m MODULE, belongs to the script and reaches it untouched. Without a terminal the script runs
as with --plain.
"""


def _share(_context: click.Context, _option: click.Parameter, value: str) -> float:
    """Parse a share of time above 0 % and at most 100 %: `1%`, `0.5 %` or `0.01`."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+|[0-9]+\.)\s*(%?)", value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a share of time; write it as 1% or 0.01")
    share = float(match[1]) / (100 if match[2] else 1)
    if not match[2] and share >= 1:
        raise click.BadParameter(f"{value!r} is ambiguous; write {value}% or a number below 1")
    if not (math.isfinite(share) and 0 < share <= 1):
        raise click.BadParameter(f"{value!r} is not above 0% and at most 100%")
    return share


def _schedule(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[Scheduled, ...]:
    """Load a schedule file. An error in it ends the command before the script runs."""
    if value is None:
        return ()
    from gradtui.export.schedule_file import load

    try:
        return load(Path(os.path.expanduser(value)))
    except BadEntry as bad:
        raise click.BadParameter(f"{value}: {bad}") from None


_SHARE: dict[str, Any] = {"callback": _share, "metavar": "SHARE", "show_default": True}


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.option("-m", "module", metavar="MODULE", help=MODULE_HELP)
@click.option("--plain", is_flag=True, help="No dashboard: progress lines and a closing summary on stderr.")
@click.option(
    "--steps",
    callback=parse_steps,
    metavar="N",
    help="Stop cleanly after N optimizer steps. Give every rank of a distributed run the same N.",
)
@click.option(
    "--pause-at-nan",
    is_flag=True,
    help="Pause the run at the first step with NaN or Inf. Every step is measured, whatever the budget, and waited for on "
    "CUDA. One of several ranks is not paused.",
)
@SUMMARY
@click.option(
    "--budget",
    **_SHARE,
    default="1%",
    help="Share of the step time that sampled measuring aims at; the hooks come on top.",
)
@click.option("--ui-budget", **_SHARE, default="0.6%", help="Share of time that the dashboard may spend drawing.")
@click.option("--log", **FILE, help="Append the script's output to FILE while the screen is up.")
@click.option(
    "--schedule",
    callback=_schedule,
    metavar="FILE",
    help="Do to the run what FILE says, as an earlier run wrote it down.",
)
@rule_options
@click.option("--version", "show_version", is_flag=True, help="Show the version and exit.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def _command(
    module: str | None,
    words: tuple[str, ...],
    show_version: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    **options: Any,
) -> Settings | None:
    """Run a PyTorch training script, unedited, with a dashboard in the terminal."""
    if show_version:
        click.echo(f"gradtui {__version__}")
        return None
    target = target_of(module, words)
    return Settings(target=target, rules=selected_ids(target, select, ignore), **options)


def parse(argv: Sequence[str]) -> Settings:
    """Parse the arguments after the program name into `Settings`. Subcommands that run no script do their work here.

    Raises:
        SystemExit: 0 after --help, --version and such a subcommand; 2 after one line on stderr that describes the error.
    """
    words, command, name = list(argv), _command, "gradtui"
    if words and words[0] in SUBCOMMANDS:
        name, command, words = f"gradtui {words[0]}", SUBCOMMANDS[words[0]], words[1:]
    try:
        outcome = command.main(fence_module_arguments(command, words), prog_name=name, standalone_mode=False)
    except click.ClickException as problem:
        message = " ".join(problem.format_message().split())
        write_line(f"{message[:1].lower()}{message[1:]}")
        raise SystemExit(USAGE_ERROR) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    if isinstance(outcome, Settings):
        return outcome
    raise SystemExit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the script and return the exit code.

    Raises:
        SystemExit: for --help, --version, a subcommand that runs no script, and a bad command line.
        KeyboardInterrupt: at the very end, if Ctrl+C ended the script, so that the process dies as python does.
    """
    settings = parse(sys.argv[1:] if argv is None else argv)
    launch: Callable[[Settings], int] = importlib.import_module("gradtui.launch").launch
    return launch(settings)
