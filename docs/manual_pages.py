"""A Sphinx extension: write the pages of the reference that the code knows, before the sources are read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from summary_fields import fields_of, kinds_in, schema_text, type_words

from gradtui.command_line.cli import _command as main_command
from gradtui.command_line.subcommand_table import SUBCOMMANDS
from gradtui.configuration.sources import SETTINGS
from gradtui.protocol.run_summary import RunSummary
from gradtui.protocol.vocabulary import STATE_NAMES, ParameterState
from gradtui.records.export.rule_pages import rule_text
from gradtui.run.diagnostics import all_rules
from gradtui.run.text.explanation.states import STATE_MEANINGS
from gradtui.tui.actions import ACTIONS
from gradtui.tui.actions.action import GROUPS
from gradtui.tui.screens.meanings import MEANINGS

REFERENCE = Path(__file__).parent / "reference"


def cell(text: str) -> str:
    """Return a text as it may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def command_line() -> str:
    """Return the help of the command and of each subcommand."""
    commands: list[tuple[str, click.Command]] = [("gradtui", main_command)]
    commands += [(f"gradtui {name}", each) for name, each in sorted(SUBCOMMANDS.items())]
    parts = ["# Command line\n"]
    for name, command in commands:
        # With its settings: click keeps the help option that the first context of a command makes.
        settings = {**command.context_settings, "max_content_width": 96, "terminal_width": 96}
        context = click.Context(command, info_name=name, **settings)
        parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def settings() -> str:
    """Return the settings with their defaults, options and variables."""
    rows = (
        (
            f"`{each.name}`",
            f"`{each.text(each.default)}`" if each.default is not None else "",
            f"`{each.variable}`",
            cell(each.help),
        )
        for each in SETTINGS
    )
    link = "[Configuration files](configuration.md) says where they are written.\n\n"
    return (
        "# Settings\n\nThe option of a setting is its name after `--`. "
        + link
        + table(("name", "default", "variable", "what it does"), rows)
    )


def keys() -> str:
    """Return all actions by group."""
    parts = [
        "# Keys and actions\n\nAn action without a key is in the palette (`ctrl+p`). "
        "`[keys]` of a configuration file names an action by its id.\n"
    ]
    for group in GROUPS:
        rows = (
            (" ".join(f"`{key}`" for key in each.keys), f"`{each.id}`", cell(each.title), cell(each.help))
            for each in ACTIONS
            if each.group == group
        )
        parts.append(f"## {group}\n\n" + table(("keys", "id", "title", "what it does"), rows))
    return "\n".join(parts)


def states() -> str:
    """Return the states of a parameter, then every sign of the screen."""
    rows = ((STATE_NAMES[state], f"`{state.value}`", cell(STATE_MEANINGS.get(state, ""))) for state in ParameterState)
    parts = ["# States and signs\n\n" + table(("state", "letter", "meaning"), rows)]
    for group in MEANINGS:
        lines = (
            (
                f"`` {''.join(text for text, _ in each.sign).strip() or ' '} ``".replace("|", "\\|"),
                cell(each.brief),
                cell(each.text),
            )
            for each in group.entries
        )
        parts.append(f"## {group.heading}\n\n" + table(("sign", "in short", "meaning"), lines))
    return "\n".join(parts)


def findings() -> str:
    """Return the list of the rules, with links to their pages."""
    rows = (
        (f"[{each.id}](../rules/{each.id}.md)", each.level.value, "on" if each.is_default else "off", cell(each.title))
        for each in all_rules()
    )
    tree = "\n```{toctree}\n:hidden:\n:glob:\n\n../rules/*\n```\n"
    return (
        "# Findings\n\n`gradtui explain ID` prints the page of a rule.\n\n"
        + table(("rule", "level", "default", "what is wrong"), rows)
        + tree
    )


def summary_fields() -> str:
    """Return the keys of the summary's file, object by object."""
    parts = [
        "# The fields of the summary\n\n[The closing summary](summary.md) explains the values. "
        "{download}`summary.schema.json` is the JSON schema of the file. A later version may add fields.\n"
    ]
    for kind in kinds_in(RunSummary):
        rows = (
            (f"`{name}`", type_words(hint, lambda kind: f"[{kind}](#{kind.lower()})"), cell(text))
            for name, hint, text in fields_of(kind)
        )
        about = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        parts.append(f"## {kind.__name__}\n\n{about}\n\n" + table(("key", "type", "meaning"), rows))
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "command-line": command_line,
    "settings": settings,
    "keys": keys,
    "states": states,
    "findings": findings,
    "summary-fields": summary_fields,
}


def write_pages(_app: Any) -> None:
    """Write each page that has changed."""
    files = {f"{name}.md": make for name, make in PAGES.items()} | {"summary.schema.json": schema_text}
    for name, make in files.items():
        path, text = REFERENCE / name, make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def read_rule(_app: Any, document: str, source: list[str]) -> None:
    """Give the page of a rule what `gradtui explain` prints: also how to silence it, and the example."""
    by_document = {f"rules/{rule.id}": rule for rule in all_rules()}
    if document in by_document:
        source[0] = rule_text(by_document[document])


def literal_code(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings mark code as Markdown does, by one backtick."""
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", lambda code: f"``{' '.join(code[1].split())}``", "\n".join(lines))
    lines[:] = text.split("\n")


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", read_rule)
    app.connect("autodoc-process-docstring", literal_code, priority=400)  # before napoleon, which splits at colons
    return {"parallel_read_safe": True}
