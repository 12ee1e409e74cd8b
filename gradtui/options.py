"""Options that several commands have: what their values mean, and which rules they select."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gradtui.protocol.codec import BadEntry
from gradtui.pyproject import project_file, read_table
from gradtui.settings import Target

F = TypeVar("F", bound=Callable[..., Any])

MODULE_HELP = "Run a module, as python -m does; the rest are its arguments."


def parse_steps(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a number of steps, at least one."""
    if value is None:
        return None
    if re.fullmatch(r"\+?[0-9]+", value.strip()) is None or int(value) < 1:
        raise click.BadParameter(f"{value!r} is not a number of steps; write a whole number from 1 on")
    return int(value)


def parse_output_file(_context: click.Context, _option: click.Parameter, value: str | None) -> Path | None:
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


FILE: dict[str, Any] = {"callback": parse_output_file, "metavar": "FILE"}

SUMMARY = click.option(
    "--summary", **FILE, help="Write the summary to FILE as JSON, updated every few seconds during the run."
)


def _parse_rules(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return ()
    from gradtui.diagnostics.selection import rule_words

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
    if module is not None:
        return Target(path=None, module=module, arguments=words)
    if not words or not words[0]:
        raise click.UsageError("no script to run; give a SCRIPT or -m MODULE (--help shows the options)")
    return Target(path=words[0], module=None, arguments=words[1:])


def _project_file_of(target: Target) -> Path | None:
    # A directory that is gone, or that may not be read, belongs to no project.
    with contextlib.suppress(OSError):
        return project_file(Path.cwd() if target.path is None else Path(os.path.abspath(target.path)).parent)
    return None


def selected_ids(target: Target, select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the ids of the rules that the command line and the script's `pyproject.toml` select; None for the default.

    For a module the search for `pyproject.toml` begins in the current directory.
    """
    file = _project_file_of(target)
    try:
        table = read_table(file, ("select", "ignore")) if file is not None else {}
        if not (table or select or ignore):
            return None
        from gradtui.diagnostics.selection import RuleWords, rule_words, selected_rules

        written = RuleWords(**{key: rule_words(words) for key, words in table.items()})
    except BadEntry as bad:
        raise click.UsageError(f"{file}: {bad}") from None
    rules = selected_rules((written, RuleWords(select, ignore)))
    if not rules:
        raise click.UsageError("no rule is left to run; select more, or ignore fewer")
    return tuple(rule.id for rule in rules)


def fence_module_arguments(command: click.Command, argv: list[str]) -> list[str]:
    """Insert `--` after `-m MODULE`, so that the rest belongs to the module even if it looks like an option of gradtui."""
    takes_value = {
        name
        for option in command.params
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
