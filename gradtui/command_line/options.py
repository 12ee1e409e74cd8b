"""Options that several commands have: what their values mean, and which rules they select."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradtui.configuration.sources import SETTINGS, Setting
from gradtui.protocol.bad_entry import BadEntry
from gradtui.system.byte_units import parse_size

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from gradtui.configuration.in_force import Configuration
    from gradtui.configuration.settings import Target

F = TypeVar("F", bound=Callable[..., Any])

MODULE_HELP = "Run a module, as python -m does; the rest are its arguments."


def parse_steps(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of steps, at least one."""
    if value is None:
        return None
    if re.fullmatch(r"\+?[0-9]{1,18}", value.strip()) is None or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not a number of steps; write a whole number from 1 on")
    return int(value)


def parse_samples(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of samples, at least two: a dimension of one sample looks like every other dimension of size 1."""
    if value is None:
        return None
    if re.fullmatch(r"\+?[0-9]{1,18}", value.strip()) is None or int(value) < 2:
        raise click.BadParameter(f"{value!r} is not a batch size; write a whole number from 2 on")
    return int(value)


def parse_bytes(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a size in memory, such as 8GiB, 500 MB or 1.5g."""
    if value is None:
        return None
    size = parse_size(value)
    if size is None:
        raise click.BadParameter(f"{value!r} is not a size; write it like 8GiB or 500MB")
    if size < 1:
        raise click.BadParameter(f"{value!r} is no memory at all")
    return size


def parse_factors(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check factors, such as 2 or 0.5: finite numbers above 0."""
    for value in values:
        try:
            factor = float(value)
        except ValueError:
            factor = 0.0
        if not 0.0 < factor < float("inf"):
            raise click.BadParameter(f"{value!r} is not a factor; write a number above 0, such as 2 or 0.5")
    return values


def parse_output_file(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
    """Return the path of a writable file. An unwritable one is refused now, not after hours of training."""
    if value is None:
        return None
    from pathlib import Path

    path = Path(os.path.abspath(os.path.expanduser(value)))
    # Unlike the methods of `Path`, these functions answer also if a directory may not be searched.
    if os.path.isdir(path):
        raise click.BadParameter(f"{value!r} is a directory")
    if not os.path.isdir(path.parent):
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}")
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise click.BadParameter(f"{value!r} cannot be written")
    return path


def complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


FILE: dict[str, Any] = {"callback": parse_output_file, "metavar": "FILE", "shell_complete": complete_files}

SUMMARY = click.option(
    "--summary", **FILE, help="Write the summary to FILE as JSON, updated every few seconds during the run."
)


def _parse_rules(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return ()
    from gradtui.run.diagnostics.selection import rule_words

    try:
        return rule_words(",".join(values).split(","))
    except BadEntry as bad:
        raise click.BadParameter(str(bad)) from None


def rule_options(command: F) -> F:
    """Add `--select` and `--ignore`."""
    described = {
        "--ignore": "Leave out these rules.",
        "--select": "Run these rules only: ids, or their beginnings (GT204,GT3).",
    }
    for name, words in described.items():
        command = click.option(name, multiple=True, callback=_parse_rules, metavar="IDS", help=words)(command)
    return command


def target_of(module: str | None, words: tuple[str, ...]) -> Target:
    """Return the program that the words of a command line name."""
    from gradtui.configuration.settings import Target

    if module is not None:
        return Target(path=None, module=module, arguments=words)
    if not words or not words[0]:
        raise click.UsageError("no script to run; give a SCRIPT or -m MODULE (--help shows the options)")
    return Target(path=words[0], module=None, arguments=words[1:])


def _validated(setting: Setting) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def validate(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        try:
            if value is not None:
                setting.parse(value)
        except BadEntry as bad:
            raise click.BadParameter(str(bad)) from None
        return value

    return validate


def _completed(
    choices: tuple[str, ...],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in choices if each.startswith(incomplete)]

    return complete


def setting_options(command: F) -> F:
    """Add an option for each setting that files and the environment may give too. Its value is the text, None without it."""
    return _with_settings(command, SETTINGS)


def policy_options(command: F) -> F:
    """Add the options of the return policies alone."""
    return _with_settings(command, [setting for setting in SETTINGS if setting.implied])


def viewing_options(*left_out: str) -> Callable[[F], F]:
    """Like `setting_options`, for a dashboard that shows another process. Leaves out what only the run itself obeys, and the
    names given."""
    names = {"budget", "keep", "notify", "return-at-nan", "return-at-spike", *left_out}
    return lambda command: _with_settings(command, [setting for setting in SETTINGS if setting.name not in names])


def _with_settings(command: F, settings: Sequence[Setting]) -> F:
    for setting in reversed(settings):
        command = click.option(
            f"--{setting.name}",
            callback=_validated(setting),
            metavar=setting.metavar,
            help=setting.help,
            shell_complete=_completed(setting.choices),
        )(command)
    return command


def folder_of(target: Target | None) -> Path | None:
    """Return the directory in which the search for `pyproject.toml` begins: the script's, and without one the current one."""
    from pathlib import Path

    # A current directory that is gone belongs to no project.
    with contextlib.suppress(OSError):
        return Path.cwd() if target is None or target.path is None else Path(os.path.abspath(target.path)).parent
    return None


def settings_in_force(target: Target | None, options: dict[str, Any]) -> Configuration:
    """Return the settings for a run of `target`.

    Args:
        target: the program to run; None for any in the current directory.
        options: the values of `setting_options` or `viewing_options`, by the names of parameters. They are removed from it.
    """
    from gradtui.configuration.in_force import configuration

    given = {setting.name: options.pop(setting.name.replace("-", "_"), None) for setting in SETTINGS}
    return configuration(folder_of(target), given, os.environ)


def selected_ids(found: Configuration, select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the ids of the rules that the project and the command line select; None for the default."""
    if not (found["select"] or found["ignore"] or select or ignore):
        return None
    from gradtui.run.diagnostics.selection import RuleWords, selected_rules

    rules = selected_rules((RuleWords(found["select"], found["ignore"]), RuleWords(select, ignore)))
    if not rules:
        raise click.UsageError("no rule is left to run; select more, or ignore fewer")
    return tuple(rule.id for rule in rules)


def own_words(command: click.Command, argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options before the script or `-m MODULE`, each with its value; that of a flag is empty."""
    takes_value = _takes_value(command)
    words = iter(argv)
    for word in words:
        if word == "--" or word.startswith("-m") or not word.startswith("-"):
            return
        name, is_glued, value = word.partition("=")
        yield name, value if is_glued or name not in takes_value else next(words, "")


def with_implied_values(command: click.Command, argv: list[str]) -> list[str]:
    """Return the words with the value of each option of gradtui that may stand alone: `--return-at-nan train.py`."""
    takes_value, written, index = _takes_value(command), list[str](), 0
    optional = {f"--{each.name}": each for each in SETTINGS if each.implied and f"--{each.name}" in takes_value}
    while optional and index < len(argv):
        word, follows = argv[index], argv[index + 1 : index + 2]
        if word == "--" or word.startswith("-m") or not word.startswith("-"):
            break
        has_value = word in takes_value and not (
            word in optional and not (follows and _is_of(optional[word], follows[0]))
        )
        value = follows if has_value else [optional[word].implied] if word in optional else []
        written += [word, *value]
        index += 2 if has_value else 1
    return [*written, *argv[index:]]


def _is_of(setting: Setting, word: str) -> bool:
    """Return whether a word can be the value of a setting."""
    try:
        setting.parse(word)
    except BadEntry:
        return False
    return True


def fence_module_arguments(command: click.Command, argv: list[str]) -> list[str]:
    """Insert `--` after `-m MODULE`, so that the rest belongs to the module even if it looks like an option of gradtui."""
    takes_value = _takes_value(command)
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


def _takes_value(command: click.Command) -> set[str]:
    """Return the names of the options that have a value."""
    return {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.is_flag and option.name != "module"
        for name in option.opts
    }
