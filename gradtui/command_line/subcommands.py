"""The subcommands: `check` runs a script without a screen and reports findings, `forecast` what other choices would cost;
`explain` and `rules` describe the rules, `config` prints the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gradtui.command_line.json_output import print_json
from gradtui.command_line.options import (
    FILE,
    MODULE_HELP,
    SUMMARY,
    F,
    complete_files,
    folder_of,
    parse_bytes,
    parse_factors,
    parse_samples,
    parse_steps,
    policy_options,
    rule_options,
    selected_ids,
    setting_options,
    settings_in_force,
    target_of,
    viewing_options,
)
from gradtui.configuration.choices import USAGE_ERROR
from gradtui.protocol.bad_entry import BadEntry
from gradtui.system.printable import printable, write_line

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from gradtui.configuration.settings import Settings, Target

_HELP_NAMES = ["-h", "--help"]
CHECKED_STEPS = 60
"""Steps after which `gradtui check` stops the script, unless the command line says otherwise."""
_BUDGET = 0.5
"""The share of the step time that `gradtui check` samples with: a short run, of which only the findings count."""


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"allow_interspersed_args": False, "help_option_names": _HELP_NAMES},
    epilog="Exit code: the script's own if it fails, else 3 if a confirmed finding reaches the level of --fail-on, else 0.",
)
@click.option("-m", "module", metavar="MODULE", help=MODULE_HELP)
@click.option(
    "--steps",
    callback=parse_steps,
    metavar="N",
    default=str(CHECKED_STEPS),
    show_default=True,
    help="Stop cleanly after N optimizer steps.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="error",
    show_default=True,
    help="The least level of a confirmed finding that gives exit code 3.",
)
@click.option(
    "--format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Format of the findings: lines, a JSON list, SARIF 2.1.0, or annotations of GitHub Actions.",
)
@click.option("--output", **FILE, help="Write the findings to FILE instead of stderr.")
@rule_options
@policy_options
@SUMMARY
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...", shell_complete=complete_files)
def _check(
    module: str | None,
    words: tuple[str, ...],
    steps: int,
    fail_on: str,
    format: str,
    output: Path | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    summary: Path | None,
    **policies: Any,
) -> Settings:
    """Run the first steps of a script without a dashboard, and report what is wrong with it."""
    from gradtui.configuration.settings import Check, Settings

    target = target_of(module, words)
    found = settings_in_force(target, policies)
    return Settings(
        target=target,
        plain=True,
        steps=steps,
        budget=_BUDGET,
        summary=summary,
        rules=_project_rules(target, select, ignore),
        return_at_nan=found["return-at-nan"],
        return_at_spike=found["return-at-spike"],
        check=Check(fail_on, format, output),
    )


_FORECAST_STEPS = 3
"""The first step makes the optimizer's state, and gradtui records this one, whether or not more steps follow."""
_CHOICES = {
    "freeze": "Freeze what SEL names.",
    "unfreeze": "Unfreeze what SEL names.",
    "train-only": "Train what SEL names, and freeze the rest.",
    "checkpoint": "Checkpoint the activations of the modules that SEL names, by path or glob.",
}


def _choice_options(command: F) -> F:
    for name, words in reversed(_CHOICES.items()):
        command = click.option(f"--{name}", name.replace("-", "_"), multiple=True, metavar="SEL", help=words)(command)
    return command


def _objection(selections: str) -> str | None:
    """Return why an option's selections cannot be read, None if they can."""
    from gradtui.run.state.tree.selection import joined, objection_to_expressions

    if not selections.strip():
        return "it is empty"
    parts = joined(selections)
    if not all(parts):
        return "nothing stands on one side of a comma or a +"
    return next((wrong for part in parts if (wrong := objection_to_expressions(part)) is not None), None)


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"allow_interspersed_args": False, "help_option_names": _HELP_NAMES},
    epilog="Each option is one choice; commas join several selections in it. SEL is what the dashboard's dialog takes: a path, "
    "a glob, :head, :norms, :last-2-blocks, re:EXPRESSION. Exit code: the script's own if it fails, else 2 for a selection "
    "that names nothing, else 4 if nothing fits into --fit.",
)
@click.option("-m", "module", metavar="MODULE", help=MODULE_HELP)
@_choice_options
@click.option(
    "--batch-scale",
    multiple=True,
    callback=parse_factors,
    metavar="F",
    help="Multiply the batch size by F. The new size must be a whole number.",
)
@click.option(
    "--batch-size",
    callback=parse_samples,
    metavar="N",
    help="The script's batch has N samples now. --batch-scale and --fit look for the batch in the first dimension of the "
    "inputs without it, and with it in the second one too, as where a sequence comes first.",
)
@click.option(
    "--fit",
    "room",
    callback=parse_bytes,
    metavar="SIZE",
    help="Find the cheapest blocks to checkpoint so that the peak of a step fits into SIZE, such as 8GiB: the outermost ones, "
    "or if none of these choices fits, blocks within them.",
)
@click.option(
    "--steps",
    callback=parse_steps,
    metavar="N",
    default=None,
    show_default="about 30, to know the time of a step",
    help="Stop cleanly after N optimizer steps with what is asked about (looked for in 1,000 steps, 2 minutes at most). The "
    "forecasts are of the last one; the first may lack optimizer state. 3 are enough for memory. Without N the script stops "
    "when the time of a step is known, after 100 steps or one minute at most.",
)
@click.option(
    "--format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text on stderr, or JSON on stdout: what the script prints goes to stderr then.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...", shell_complete=complete_files)
def _forecast(
    module: str | None,
    words: tuple[str, ...],
    steps: int | None,
    format: str,
    room: int | None,
    batch_scale: tuple[str, ...],
    batch_size: int | None,
    **selections: Any,
) -> Settings:
    """Run the first steps of a script without a dashboard, and print what other choices would cost."""
    choices = tuple((name, each) for name in _CHOICES for each in selections[name.replace("-", "_")])
    if not choices and not batch_scale and room is None:
        raise click.UsageError(
            "no choice to forecast; give --freeze, --unfreeze, --train-only, --checkpoint, --batch-scale or --fit"
        )
    for name, each in choices:
        wrong = _objection(each)
        if wrong is not None:
            raise click.UsageError(f"--{name} {each!r}: {wrong}")
    from gradtui.configuration.settings import ForecastChoices, Settings
    from gradtui.protocol.commands import TraceStep
    from gradtui.protocol.schedule import Scheduled

    last = steps if steps is not None else _FORECAST_STEPS
    return Settings(
        target=target_of(module, words),
        plain=True,
        steps=last,
        schedule=(Scheduled(last - 1, TraceStep(1, operations=True)),),
        forecast=ForecastChoices(
            (*choices, *(("batch-scale", each) for each in batch_scale)), format, room, batch_size, steps is None
        ),
    )


def _project_rules(target: Target, select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the ids of the rules to run. A wrong entry in `pyproject.toml` ends the check, which would run other rules."""
    from gradtui.configuration.in_force import configuration

    found = configuration(folder_of(target), {}, {}, with_user=False)
    if found.problems:
        raise click.UsageError(found.problems[0])
    return selected_ids(found, select, ignore)


def _complete_ids(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from gradtui.run.diagnostics import all_rules

    return [CompletionItem(each.id, help=each.title) for each in all_rules() if each.id.startswith(incomplete.upper())]


@click.command(context_settings={"help_option_names": _HELP_NAMES})
@click.argument("id", metavar="ID", shell_complete=_complete_ids)
def _explain(id: str) -> None:
    """Print what a rule finds, why it is wrong, what to do, and an example: gradtui explain GT204."""
    from gradtui.records.export.rule_pages import rule_text
    from gradtui.run.diagnostics.selection import rule_named

    try:
        rule = rule_named(id)
    except BadEntry as bad:
        raise click.UsageError(str(bad)) from None
    click.echo(rule_text(rule))


@click.command(context_settings={"help_option_names": _HELP_NAMES})
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def _rules(format: str) -> None:
    """List all rules: id, level, title, and which are off by default."""
    from gradtui.run.diagnostics import all_rules
    from gradtui.system.plugins import problems

    rules = all_rules()
    for part, problem in problems().items():
        write_line(f"{part}: {problem}")
    if format == "json":
        entries = [
            {"id": rule.id, "level": rule.level.value, "title": rule.title, "default": rule.is_default}
            for rule in rules
        ]
        print_json(entries)
        return
    for rule in rules:
        click.echo(f"{rule.id}  {rule.level:<7}  {'on ' if rule.is_default else 'off'}  {rule.title}")


@click.command(options_metavar="[OPTIONS]", context_settings={"help_option_names": _HELP_NAMES})
@click.option("--path", "show_path", is_flag=True, help="Print the path of your config.toml, and nothing else.")
@click.option("--keys", "show_keys", is_flag=True, help="List all actions with their keys: id, keys, title.")
@setting_options
def _config(show_path: bool, show_keys: bool, **options: Any) -> None:
    """Print the settings that a run in this directory has, and where each comes from."""
    if show_path:
        from gradtui.configuration.config_files import user_file

        click.echo(user_file())
        return
    from gradtui.tui.actions import ACTIONS, keymap

    found = settings_in_force(None, options)
    remapped = keymap(found.keys)
    if show_keys:
        _print_table([(action.id, ", ".join(action.keys), action.title) for action in remapped.apply(ACTIONS)])
        return
    wrong = {f"keys.{entry.action}" for entry in found.keys if entry.action not in remapped.keys}
    _print_table([(name, value.text, value.origin) for name, value in found.values.items() if name not in wrong])
    problems = (*found.problems, *remapped.problems)
    for problem in problems:
        write_line(problem)
    if problems:
        raise SystemExit(USAGE_ERROR)


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    first, second = (max(len(printable(row[column])) for row in rows) for column in (0, 1))
    for row in rows:
        one, two, three = map(printable, row)
        click.echo(f"{one:<{first}}  {two:<{second}}  {three}")


@click.command(options_metavar="[OPTIONS]", context_settings={"help_option_names": _HELP_NAMES})
@click.option(
    "--plain",
    is_flag=True,
    help="No dashboard: what was reported, on stderr. Also with --summary.",
)
@SUMMARY
@viewing_options("alert")
@click.argument("file", metavar="FILE", shell_complete=complete_files)
def _replay(file: str, plain: bool, summary: Path | None, **options: Any) -> None:
    """Open a recording of a run: gradtui --record FILE SCRIPT writes one."""
    from pathlib import Path

    from gradtui.records.recording import RecordingError
    from gradtui.runner.terminal import why_no_screen

    try:
        if plain or summary is not None or why_no_screen() is not None:
            from gradtui.launch.replay.lines import replay_plain

            replay_plain(Path(file), summary)
        else:
            from gradtui.launch.replay.screen import replay_screen

            replay_screen(Path(file), settings_in_force(None, options))
    except RecordingError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {summary}: {error.strerror or error}") from None


COMMANDS = {
    "check": _check,
    "forecast": _forecast,
    "config": _config,
    "explain": _explain,
    "replay": _replay,
    "rules": _rules,
}
