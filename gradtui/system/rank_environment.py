"""The environment of a rank: where the viewer of its job is, and which rank it is. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONNECT = "GRADTUI_CONNECT"
"""The variable that makes a process of gradtui a rank, and tells it where the viewer of its job is: as `Settings.connect`."""

TOKEN = "GRADTUI_TOKEN"
"""The variable that has the token of a run. A command line would show it to other users."""

ANNOUNCE = "GRADTUI_ANNOUNCE"
"""The variable that has where the viewer listens for ranks of other nodes: those of its own node write it into their store."""

OUTPUT = "GRADTUI_OUTPUT"
"""The variable that has the log of the launching process, while its screen is up: what a rank prints goes there too."""

PLACE = "{rank}"
"""What the name of a file has where each rank is to put its number."""

_NUMBERS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""The variables that have the rank of a process, set by torchrun, Slurm, Open MPI, and MPICH and Intel MPI."""


_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""The variables that have the number of ranks, set by the same."""


def rank_in(environ: Mapping[str, str]) -> int | None:
    """Return the rank that the environment gives a process; None if it gives none."""
    return _first_number(environ, _NUMBERS)


def rank_of_several(environ: Mapping[str, str]) -> int | None:
    """Return the rank that the environment gives a process; None if it gives none, or if no other rank is there."""
    ranks = _first_number(environ, _SIZES)
    return rank_in(environ) if ranks is not None and ranks > 1 else None


def _first_number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    numbers = (number_in(environ, name) for name in names)
    return next((number for number in numbers if number is not None), None)


def local_rank_in(environ: Mapping[str, str]) -> int | None:
    """Return the number that the environment gives a process among those of its node; None if it gives none."""
    return number_in(environ, "LOCAL_RANK")


def number_in(environ: Mapping[str, str], name: str) -> int | None:
    """Return a variable that is a number of at most 9 digits; None if it is not."""
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def of_rank(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the path with the rank of this process for `{rank}` in the file's name. Without a rank it stays as it is."""
    rank = rank_in(environ)
    if rank is None and environ.get("NODE_RANK", "0") == "0":
        # Of the processes that Lightning starts.
        rank = local_rank_in(environ)
    return with_rank(path, rank)


def with_rank(path: Path | None, rank: int | None) -> Path | None:
    """Return the path with a rank for `{rank}` in the file's name; without a rank as it is."""
    if path is None or rank is None:
        return path
    return path.with_name(path.name.replace(PLACE, str(rank)))
