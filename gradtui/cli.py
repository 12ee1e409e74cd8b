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
from gradtui.protocol.codec import BadEntry
from gradtui.protocol.schedule import Scheduled
from gradtui.settings import USAGE_ERROR, Settings, Target

_EPILOG = (
    "Everything after SCRIPT, or after -m MODULE, belongs to the script and reaches it untouched. "
    "Without a terminal the script runs as with --plain."
)


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


def _steps(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of steps, at least one."""
    if value is None:
        return None
    if re.fullmatch(r"\+?[0-9]+", value.strip()) is None or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not a number of steps; write a whole number from 1 on")
    return int(value)


def _output_file(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    """Return the path of a writable file. An unwritable one is refused now, not after hours of training."""
    if value is None:
        return None
    path = Path(os.path.abspath(os.path.expanduser(value)))
    if path.is_dir():
        raise click.BadParameter(f"{value!r} is a directory")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{value!r} cannot be written")
    return path


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
_FILE: dict[str, Any] = {"callback": _output_file, "metavar": "FILE"}


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does; the rest are its arguments.")
@click.option("--plain", is_flag=True, help="No dashboard: progress lines and a closing summary on stderr.")
@click.option(
    "--steps",
    callback=_steps,
    metavar="N",
    help="Stop cleanly after N optimizer steps. Give every rank of a distributed run the same N.",
)
@click.option(
    "--pause-at-nan",
    is_flag=True,
    help="Pause the run at the first step with NaN or Inf. Every step is measured, whatever the budget, and waited for on "
    "CUDA. One of several ranks is not paused.",
)
@click.option("--summary", **_FILE, help="Write the summary to FILE as JSON, updated every few seconds during the run.")
@click.option(
    "--budget",
    **_SHARE,
    default="1%",
    help="Share of the step time that sampled measuring aims at; the hooks come on top.",
)
@click.option("--ui-budget", **_SHARE, default="0.6%", help="Share of time that the dashboard may spend drawing.")
@click.option("--log", **_FILE, help="Append the script's output to FILE while the screen is up.")
@click.option(
    "--schedule",
    callback=_schedule,
    metavar="FILE",
    help="Do to the run what FILE says, as an earlier run wrote it down.",
)
@click.option("--version", "show_version", is_flag=True, help="Show the version and exit.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def _command(module: str | None, words: tuple[str, ...], show_version: bool, **options: Any) -> Settings | None:
    """Run a PyTorch training script, unedited, with a dashboard in the terminal."""
    if show_version:
        click.echo(f"gradtui {__version__}")
        return None
    if module is not None:
        return Settings(target=Target(path=None, module=module, arguments=words), **options)
    if not words or not words[0]:
        raise click.UsageError("no script to run; give a SCRIPT or -m MODULE (--help shows the options)")
    return Settings(target=Target(path=words[0], module=None, arguments=words[1:]), **options)


def parse(argv: Sequence[str]) -> Settings:
    """Parse the arguments after the program name into `Settings`.

    Raises:
        SystemExit: 0 after --help or --version; 2 after one line on stderr that describes the error.
    """
    try:
        outcome = _command.main(_fence_module_arguments(list(argv)), prog_name="gradtui", standalone_mode=False)
    except click.ClickException as problem:
        message = " ".join(problem.format_message().split())
        click.echo(f"gradtui: {message[:1].lower()}{message[1:]}", err=True)
        raise SystemExit(USAGE_ERROR) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    if isinstance(outcome, Settings):
        return outcome
    raise SystemExit(0)


def _fence_module_arguments(argv: list[str]) -> list[str]:
    """Insert `--` after `-m MODULE`, so that the rest belongs to the module even if it looks like an option of gradtui."""
    takes_value = {
        name
        for option in _command.params
        if isinstance(option, click.Option) and not option.is_flag and option.name != "module"
        for name in option.opts
    }
    index = 0
    while index < len(argv):
        word = argv[index]
        if word == "-m":
            index += 1
        if word.startswith("-m"):
            return [*argv[: index + 1], *(["--"] if index < len(argv) else []), *argv[index + 1 :]]
        if word == "--" or not word.startswith("-"):
            return argv
        index += 2 if word in takes_value else 1
    return argv


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the script and return the script's exit code.

    Raises:
        SystemExit: for --help, --version and a bad command line.
        KeyboardInterrupt: at the very end, if Ctrl+C ended the script, so that the process dies as python does.
    """
    settings = parse(sys.argv[1:] if argv is None else argv)
    launch: Callable[[Settings], int] = importlib.import_module("gradtui.launch").launch
    return launch(settings)
