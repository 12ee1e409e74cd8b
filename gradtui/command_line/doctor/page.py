"""What the page of `gradtui doctor` consists of: parts with facts, and what is missing. Pure; standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import field, replace
from typing import Any

from gradtui.dataclass import dataclass
from gradtui.system.printable import printable
from gradtui.system.version import __version__

SCHEMA = 1

_MAX = 500
"""Characters of a value: a message of another program may be long."""


@dataclass(frozen=True)
class Lack:
    """Something that is missing or does not work.

    Attributes:
        name: what can be asked for by it (`ABILITIES`), or the name of a package or part.
        what: what is missing, in a clause.
        cost: what does not work without it.
        remedy: how to get it.
        is_asked_for: whether the machine, the environment or the settings ask for it, so that its lack is a failure.
    """

    name: str
    what: str
    cost: str
    remedy: str
    is_asked_for: bool = False


@dataclass(frozen=True)
class Part:
    """One part of the page.

    Attributes:
        name: its key in JSON and its heading in the text.
        facts: plain data for JSON.
        rows: the same for people, one line each.
        lacks: what is missing.
    """

    name: str
    facts: Any
    rows: tuple[str, ...]
    lacks: tuple[Lack, ...] = ()


ABILITIES = {
    "training": "torch",
    "cuda": "training on a CUDA device",
    "nvml": "the memory of CUDA devices as their driver sees it",
    "screen": "the dashboard in this terminal",
    "mcp": "gradtui mcp",
    "report": "charts in gradtui report",
    "parquet": "gradtui export --parquet",
    "tensorboard": "gradtui export --tensorboard",
    "zstd": "compressed recordings",
}
"""What can be asked for by name, and what each is."""


@dataclass(frozen=True)
class Page:
    """All parts, without names of the user and control characters."""

    parts: tuple[Part, ...]
    lacks: tuple[Lack, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """1 if something that was asked for cannot work, else 0."""
        return int(any(lack.is_asked_for for lack in self.lacks))

    def document(self) -> dict[str, Any]:
        """Return the page as JSON-ready data."""
        missing = [
            {
                "name": lack.name,
                "what": lack.what,
                "cost": lack.cost,
                "remedy": lack.remedy,
                "asked_for": lack.is_asked_for,
            }
            for lack in self.lacks
        ]
        return {
            "schema": SCHEMA,
            "gradtui": __version__,
            **{part.name: part.facts for part in self.parts},
            "missing": missing,
            "exit_code": self.exit_code,
        }


def page_of(parts: Iterable[Part], asked: Collection[str]) -> Page:
    """Put the parts together: `asked` are the abilities that the user asks for."""
    kept = tuple(
        replace(part, facts=public(part.facts), rows=tuple(public(row) for row in part.rows)) for part in parts
    )
    lacks = (
        replace(
            lack,
            what=public(lack.what),
            cost=public(lack.cost),
            remedy=public(lack.remedy),
            is_asked_for=lack.is_asked_for or lack.name in asked,
        )
        for part in kept
        for lack in part.lacks
    )
    # What was asked for comes first.
    return Page(kept, tuple(sorted(lacks, key=lambda lack: not lack.is_asked_for)))


def public(value: Any) -> Any:
    """Return a value without the name of the user in paths, and without control characters."""
    if isinstance(value, str):
        return _without_user(printable(value))[:_MAX]
    if isinstance(value, dict):
        return {key: public(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [public(each) for each in value]
    return value


def _without_user(text: str) -> str:
    """Write the home directory as `~`, and the user's name as `USER` where it is a part of another path."""
    home = os.path.expanduser("~")
    for each in {home, os.path.realpath(home)}:
        if os.path.isabs(each) and each != "/":
            text = re.sub(rf"{re.escape(each)}(?![\w.-])", "~", text)
    user = os.path.basename(home)
    return re.sub(rf"(?<=/){re.escape(user)}(?![\w.-])", "USER", text) if user and user != "root" else text
