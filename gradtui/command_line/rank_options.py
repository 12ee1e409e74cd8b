"""What the command line says about ranks: whose rank this process is, and what the ranks of a launcher get."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from gradtui.command_line.options import own_words
from gradtui.system.rank_environment import CONNECT, PLACE, TOKEN, of_rank

if TYPE_CHECKING:
    from pathlib import Path

    from gradtui.configuration.settings import Settings

_PASSED_ON = {
    "--steps", "--budget", "--keep", "--schedule", "--select", "--ignore", "--record-limit", "--return-at-nan",
    "--return-at-spike",
}  # fmt: skip
"""The options that a launcher's ranks get as well."""

_FILES = {"--summary", "--record"}
"""The options that only its ranks get if the file has a place for the rank in its name."""


def _parse_address(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from gradtui.remote.serving.addresses import BadAddressError, host_and_port

    if os.path.isabs(value):
        # A process that starts the script again gives the path of its own socket.
        return value
    try:
        host_and_port(value)
    except BadAddressError as error:
        raise click.BadParameter(str(error)) from None
    return value


CONNECT_OPTION = click.option(
    "--connect",
    callback=_parse_address,
    metavar="HOST:PORT",
    help=f"Run as one rank of a job, whose viewer is there: no dashboard, and no lines on stderr. {TOKEN} has its token.",
)


def for_ranks(settings: Settings, command: click.Command, words: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Return the settings of a launcher, of a rank, or of a process that is neither.

    Args:
        settings: what the command line says otherwise.
        command: what has parsed it.
        words: the command line without the name of the program.
        environ: the environment, which may make this process a rank.

    Raises:
        click.UsageError: an option has no meaning there.
    """
    from dataclasses import replace

    from gradtui.runner.launchers import is_launcher

    is_short = settings.is_short
    connect = settings.connect if settings.connect is not None or is_short else environ.get(CONNECT)
    if connect is not None and settings.listen_on is not None:
        raise click.UsageError("--listen is for the viewer of a job, and --connect for its ranks")
    if connect is not None and settings.serve is not None:
        raise click.UsageError("--serve is for the viewer of a job, and --connect for its ranks")
    passed_on = tuple(
        f"{name}={value}"
        for name, value in own_words(command, words)
        if name in _PASSED_ON or (name in _FILES and PLACE in os.path.basename(value))
    )
    if not is_launcher(settings.target):
        summary, record = of_rank(settings.summary, environ), of_rank(settings.record, environ)
        return replace(
            settings, connect=connect, summary=summary, record=record, rank_options=() if is_short else passed_on
        )
    if is_short and settings.check is None:
        raise click.UsageError(
            f"{settings.target.name} starts several processes; give the script that one of them runs"
        )
    if settings.pause_option:
        raise click.UsageError(f"{settings.pause_option} holds one process, and the other ranks would wait for it")
    if settings.check is not None:
        # The ranks run as short as a check does, and sample as much.
        passed_on = (f"--steps={settings.steps}", f"--budget={settings.budget}", *passed_on)
    return replace(
        settings,
        job=True,
        connect=connect,
        rank_options=passed_on,
        summary=_of_launcher(settings.summary),
        record=_of_launcher(settings.record),
        schedule=(),
    )


def _of_launcher(path: Path | None) -> Path | None:
    """Return the file of the launching process; None if it is that of its ranks."""
    return None if path is None or PLACE in path.name else path
