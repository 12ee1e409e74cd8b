"""The subcommand `try`: run a script without a screen, and measure what changes cost in loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gradtui.command_line.options import MODULE_HELP, complete_files, parse_steps, target_of
from gradtui.protocol.bad_entry import BadEntry

if TYPE_CHECKING:
    from gradtui.configuration.settings import Settings

_AFTER, _STEPS = 20, 100
_SPARE = 3
"""Steps after the last side: it ends when the batch of the next step is requested."""


@click.command(
    "try",
    options_metavar="[OPTIONS]",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    epilog="Exit code: the script's own if it fails, else 2 if nothing could be tried.",
)
@click.option("-m", "module", metavar="MODULE", help=MODULE_HELP)
@click.option(
    "--plans",
    multiple=True,
    metavar="NAMES",
    help="What trains, as names of presets with commas between them: head, last-1-blocks, norms, lora, all. + joins two: "
    "last-2-blocks+head.",
)
@click.option(
    "--change", "changes", multiple=True, metavar="CHANGE", help='A change as gradtui do takes it: "freeze encoder".'
)
@click.option(
    "--steps",
    callback=parse_steps,
    metavar="N",
    default=str(_STEPS),
    show_default=True,
    help="The optimizer steps of each side.",
)
@click.option(
    "--after",
    type=click.IntRange(min=1),
    metavar="N",
    default=_AFTER,
    show_default=True,
    help="Try after so many steps of the models that have what is named.",
)
@click.option("--no-held-aside", is_flag=True, help="Make no steps on the data that the script evaluates with.")
@click.option(
    "--format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text on stderr, or JSON on stdout: what the script prints goes to stderr then.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...", shell_complete=complete_files)
def try_command(
    module: str | None,
    words: tuple[str, ...],
    plans: tuple[str, ...],
    changes: tuple[str, ...],
    steps: int,
    after: int,
    no_held_aside: bool,
    format: str,
) -> Settings:
    """Run a script without a dashboard, and measure what changes cost in loss, on the same batches."""
    from gradtui.configuration.settings import Settings, TryChoices
    from gradtui.protocol.commands import TryChange
    from gradtui.protocol.schedule import Scheduled
    from gradtui.run.state.changes.objections import objection_to

    planned = [f"train-only {_selection(each)}" for names in plans for each in names.split(",") if each.strip()]
    command = TryChange(1, (*planned, *changes), steps, held_aside=not no_held_aside)
    if not command.changes:
        raise click.UsageError("nothing to try; give --plans or --change")
    if (objection := objection_to(command)) is not None:
        raise click.UsageError(objection)
    return Settings(
        target=target_of(module, words),
        plain=True,
        steps=after + steps * (1 + len(command.changes)) + _SPARE,
        schedule=(Scheduled(after, command),),
        tried=TryChoices(tuple(_named(command.changes)), format),
    )


def _selection(plan: str) -> str:
    return ",".join(each if each.startswith(":") else f":{each}" for each in plan.strip().split("+"))


def _named(changes: tuple[str, ...]) -> list[str]:
    """Return the selections in changes. Raises `click.UsageError` for what is no change."""
    from gradtui.run.state.parts.tries import commands_of

    try:
        commands = [command for change in changes for command in commands_of(change)]
    except BadEntry as bad:
        raise click.UsageError(str(bad)) from None
    found = (getattr(each, "selection", getattr(each, "path", None)) for each in commands)
    return [each for each in found if isinstance(each, str) and each]


COMMANDS = {"try": try_command}
