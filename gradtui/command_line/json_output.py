"""What subcommands print for programs."""

from __future__ import annotations

from typing import Any

import click


def print_json(value: Any) -> None:
    """Print a value as JSON of several lines. `json` is imported only now: the completion of a shell does not wait for it."""
    import json

    click.echo(json.dumps(value, indent=1))
