"""Parse the command line into one frozen `Settings`. Main thread, before any slow import.

`--help`, `--version` and the completion of a shell import little more than click: the other imports are in the functions.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from gradtui import __version__
from gradtui.command_line.network_options import SERVE, listen_on, listen_options, serve_on
from gradtui.command_line.options import (
    FILE,
    MODULE_HELP,
    SUMMARY,
    complete_files,
    fence_module_arguments,
    parse_bytes,
    parse_steps,
    rule_options,
    selected_ids,
    setting_options,
    settings_in_force,
    target_of,
    with_implied_values,
)
from gradtui.command_line.rank_options import CONNECT_OPTION, for_ranks
from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.choices import DEFAULT_RECORD_LIMIT, USAGE_ERROR
from gradtui.configuration.sources import REPLACED, SETTINGS
from gradtui.protocol.bad_entry import BadEntry
from gradtui.system.no_collection import exempt_what_exists, no_collection

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gradtui.configuration.settings import Settings
    from gradtui.protocol.schedule import Scheduled

_EPILOG = """\
\b
gradtui check SCRIPT   run the first steps without a dashboard, and report what is wrong
gradtui forecast --freeze SEL SCRIPT
                       run the first steps, and print what a freeze would change
gradtui try --plans NAMES SCRIPT
                       measure what changes cost in loss, on the same batches
gradtui torchrun ARGS  show all ranks of a job in one dashboard; also accelerate launch ARGS
gradtui replay FILE    open a recording of --record FILE, without its run
gradtui report FILE    make a page of a recording: what trained, memory, norms, findings
gradtui compare A B    say what differs between two recordings or summaries
gradtui export FILE    write a recording as CSV, Parquet, TensorBoard events or a trace
gradtui runs           list the live runs
gradtui status         print what a live run does now
gradtui attach         open the dashboard of a live run in this terminal
gradtui do COMMAND     change a live run: freeze PATH, pause, resume, set-lr [PATH] RATE, undo
gradtui batch          write the batch of the newest NaN or spike of a live run to a file
gradtui tail           print what has happened in a live run
gradtui why PATH       explain what autograd does with a parameter or module of a live run
gradtui mcp            offer live runs to a coding agent
gradtui findings       print what is wrong with a live run
gradtui state          print the summary of a live run
gradtui explain GT204  describe a rule of check
gradtui rules          list the rules
gradtui config         print the settings in force, and where each comes from
gradtui doctor         print what gradtui finds on this machine, and what is missing
gradtui demos          write the scripts of the manual into a directory

A first word that is a subcommand is the subcommand: gradtui ./check runs a file named check.

Everything after SCRIPT, or after -m MODULE, belongs to the script and reaches it untouched. Without a terminal the script runs
as with --plain.
"""


def _schedule(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[Scheduled, ...]:
    """Load a schedule file. An error in it ends the command before the script runs."""
    if value is None:
        return ()
    from pathlib import Path

    from gradtui.records.export.schedule_file import load

    try:
        return load(Path(os.path.expanduser(value)))
    except BadEntry as bad:
        raise click.BadParameter(f"{value}: {bad}") from None


def _complete_words(context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a subcommand and its words, or a script and its arguments, which are files as far as gradtui knows."""
    from click.shell_completion import CompletionItem, ShellComplete

    words = context.params.get("words") or ()
    files = CompletionItem(incomplete, type="file")
    if words:
        command = SUBCOMMANDS.get(words[0])
        return ShellComplete(command, {}, "", "").get_completions(list(words[1:]), incomplete) if command else [files]
    names = [
        CompletionItem(name) for name in SUBCOMMANDS if name.startswith(incomplete) and not context.params["module"]
    ]
    from glob import escape, glob

    # bash completes files by itself only where nothing else is offered.
    scripts = [CompletionItem(name) for name in sorted(glob(f"{escape(incomplete)}*.py")) if names]
    return [files, *names, *scripts]


class _Command(click.Command):
    """The command without a subcommand, whose words may begin with one."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete an option of the subcommand after its name. After a script there is nothing to complete."""
        if ctx.params.get("words"):
            return _complete_words(ctx, self.params[0], incomplete)
        return super().shell_complete(ctx, incomplete)


@click.command(
    cls=_Command,
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
    "--pause-at-spike",
    is_flag=True,
    help="Pause the run at the first spike of the loss or of the gradient norm. Every step is measured, as "
    "with --pause-at-nan.",
)
@click.option(
    "--pause-at-nan",
    is_flag=True,
    help="Pause the run at the first step with NaN or Inf. Every step is measured, whatever the budget, and waited for on "
    "CUDA. One of several ranks is not paused.",
)
@SUMMARY
@click.option(
    "--record",
    **FILE,
    help="Write the events of the run to FILE, which gradtui replay opens; compressed if it ends in .zst.",
)
@click.option(
    "--record-limit",
    callback=parse_bytes,
    metavar="SIZE",
    default=f"{DEFAULT_RECORD_LIMIT >> 30}GiB",
    show_default=True,
    help="Thin out older measurements of a recording that becomes larger.",
)
@click.option(
    "--no-listen",
    "listen",
    flag_value=False,
    default=True,
    help="Let no other process of yours ask this run (gradtui runs).",
)
@listen_options
@SERVE
@CONNECT_OPTION
@click.option(
    "--read-only",
    is_flag=True,
    help="Let your other processes look at this run (gradtui attach), and change nothing (gradtui do).",
)
@setting_options
@click.option("--log", **FILE, help="Append the script's output to FILE while the screen is up.")
@click.option(
    "--schedule",
    callback=_schedule,
    metavar="FILE",
    shell_complete=complete_files,
    help="Do to the run what FILE says, as an earlier run wrote it down.",
)
@rule_options
@click.option("--version", "show_version", is_flag=True, help="Show the version and exit.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...", shell_complete=_complete_words)
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
    from gradtui.configuration.settings import Settings

    target = target_of(module, words)
    meant = _meant(target.path) if target.path is not None else None
    if meant is not None:
        raise click.UsageError(f"there is no file {target.path!r}; did you mean gradtui {meant}?")
    found = settings_in_force(target, options)
    rules = selected_ids(found, select, ignore)
    if found.problems:
        others = len(found.problems) - 1
        _say(f"{found.problems[0]}; ignored" + (f" (gradtui config lists {others} more)" if others else ""))
    values = {setting.name.replace("-", "_"): found[setting.name] for setting in SETTINGS}
    options["serve"] = serve_on(options["serve"], is_insecure=options["insecure"])
    if options["serve"] is not None:
        excluded = {
            "no-listen": not options["listen"],
            "pause-at-nan": options["pause_at_nan"],
            "pause-at-spike": options["pause_at_spike"],
        }
        for name in (name for name, is_given in excluded.items() if is_given):
            raise click.UsageError(f"--serve and --{name} exclude each other")
        # The screen would hide the page's address.
        options["plain"] = True
    where = listen_on(options)
    return Settings(target=target, rules=rules, keys=found.keys, listen_on=where, **values, **options)


def _say(text: str) -> None:
    from gradtui.system.printable import write_line

    write_line(text)


def _meant(word: str) -> str | None:
    """Return which subcommand or launcher a first word may mean that is no file; None if none has a name like it."""
    if os.path.lexists(word) or os.sep in word or word.endswith(".py"):
        return None
    import difflib

    from gradtui.protocol.codec import typed_words
    from gradtui.runner.launchers import LAUNCHERS

    if word in typed_words():
        return f"do {word}"

    near = difflib.get_close_matches(word, [*SUBCOMMANDS, *LAUNCHERS], n=1, cutoff=0.7)
    return near[0] if near and near[0] != word else None


def _unknown_option(written: str, command: click.Command) -> str:
    """Say that there is no such option, and which one may be meant if its name is close: `--sum`, `--bugdet`."""
    import difflib

    names = [name for option in command.params for name in option.opts if name.startswith("--")]
    close = [name for name in names if len(written) > 4 and name.startswith(written)]
    close = [REPLACED[written[2:]]] if written[2:] in REPLACED else close
    close = close or difflib.get_close_matches(written[2:], [name[2:] for name in names], n=1, cutoff=0.7)
    if close:
        return f"there is no option {written}; did you mean --{close[0].lstrip('-')}?"
    own = "; options of the script go after it" if any(each.name == "words" for each in command.params) else ""
    return f"there is no option {written}{own} (--help lists the options)"


def _help_width() -> int:
    """Return the columns of the help, as click chooses them: it would import `shutil`, and what unpacks archives."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size(1).columns or 80
        except OSError:
            width = 80
    return max(min(width, 80) - 2, 50)


def parse(argv: Sequence[str]) -> Settings:
    """Parse the arguments after the program name into `Settings`. Subcommands that run no script do their work here.

    Raises:
        SystemExit: 0 after --help, --version and such a subcommand; 2 after one line on stderr that describes the error.
    """
    command: click.Command = _command
    words, name = list(argv), "gradtui"
    if words and words[0] in SUBCOMMANDS:
        name, command, words = f"gradtui {words[0]}", SUBCOMMANDS[words[0]], words[1:]
    words = with_implied_values(command, words)
    try:
        outcome = command.main(
            fence_module_arguments(command, words), prog_name=name, standalone_mode=False, terminal_width=_help_width()
        )
        # After --help and the like click returns 0, and a subcommand that runs no script returns None.
        if outcome:
            settings: Settings = outcome
            with no_collection():
                return for_ranks(settings, command, words, os.environ)
    except click.NoSuchOption as problem:
        _say(_unknown_option(problem.option_name, command))
        raise SystemExit(USAGE_ERROR) from None
    except click.ClickException as problem:
        message = " ".join(problem.format_message().split())
        _say(f"{message[:1].lower()}{message[1:]}")
        raise SystemExit(USAGE_ERROR) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    raise SystemExit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the script and return the exit code.

    Raises:
        SystemExit: for --help, --version, a subcommand that runs no script, and a bad command line.
        KeyboardInterrupt: at the very end, if Ctrl+C ended the script, so that the process dies as python does.
    """
    settings = parse(sys.argv[1:] if argv is None else argv)
    with no_collection():
        launch: Callable[[Settings], int] = importlib.import_module("gradtui.launch.run").launch
        exempt_what_exists()
    return launch(settings)
