"""The subcommand that examines the machine: `gradtui doctor`."""

from __future__ import annotations

import json

import click

from gradtui.command_line.doctor.page import ABILITIES


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"WHAT is one of {', '.join(ABILITIES)}. Exit code: 1 if something that was asked for cannot work, by WHAT, by the "
    "settings or by what is installed; else 0.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("what", nargs=-1, type=click.Choice(list(ABILITIES)), metavar="[WHAT]...")
def _doctor(what: tuple[str, ...], as_json: bool) -> None:
    """Print what gradtui finds on this machine, and what is missing: the page for a bug report."""
    from gradtui.command_line.doctor import examine, page_lines

    page = examine(what)
    click.echo(json.dumps(page.document(), indent=1) if as_json else "\n".join(page_lines(page)))
    raise SystemExit(page.exit_code)


COMMANDS = {"doctor": _doctor}
