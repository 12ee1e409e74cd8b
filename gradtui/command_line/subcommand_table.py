"""The subcommands by name. A subcommand is imported when it is looked up: `gradtui --help` and the completion of a shell need
only the names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

_MODULES = {
    "check": "subcommands",
    "compare": "compare_command",
    "forecast": "subcommands",
    "config": "subcommands",
    "explain": "subcommands",
    "export": "export_command",
    "replay": "subcommands",
    "rules": "subcommands",
    "try": "try_command",
    "runs": "live_commands",
    "status": "live_commands",
    "state": "live_commands",
    "findings": "live_commands",
    "attach": "steering_commands",
    "batch": "steering_commands",
    "do": "steering_commands",
    "mcp": "steering_commands",
    "tail": "steering_commands",
    "why": "steering_commands",
    "report": "report_command",
    "doctor": "doctor_command",
    "demos": "demos_command",
}
"""The module of each subcommand in this package. Its `COMMANDS` has the command."""


class _Subcommands(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = importlib.import_module(f"{__package__}.{_MODULES[name]}").COMMANDS[name]
        return command

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


SUBCOMMANDS: Mapping[str, click.Command] = _Subcommands()
