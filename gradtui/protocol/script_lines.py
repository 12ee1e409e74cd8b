"""Lines of the script, and the exception that has ended it, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradtui.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A line of the script that ran at one moment."""

    file: str
    """Its path; relative if it lies below the working directory."""
    line: int
    """Its number, from 1."""
    source: str = ""
    """Its text; empty if that is unknown."""
    function: str = ""
    """The function that it is in; empty at the top level of a file."""
    directory: str = ""
    """What a relative path is relative to; empty if the path is absolute or that is unknown."""


@dataclass(frozen=True, slots=True)
class Uncaught:
    """The exception that ended a script."""

    type_name: str
    """Its class, as Python prints it: with its module unless that is `__main__` or `builtins`."""
    message: tuple[str, ...] = ()
    """The lines of its text and of its notes that are not blank, the first ones of many."""
    omitted: int = 0
    """Further lines of the text."""
    line: ScriptLine | None = None
    """The innermost line of the script that raised it or called what raised it."""
    cause: str = ""
    """The exception that it was raised from, or while it was handled, in one line; empty if there is none."""

    def in_words(self, rewritten: Callable[[str], str]) -> Uncaught:
        """The same with its texts rewritten."""
        message, cause = tuple(map(rewritten, self.message)), rewritten(self.cause)
        return replace(self, message=message, cause=cause)

    @property
    def headline(self) -> str:
        """The class and the first line of the text."""
        return f"{self.type_name}: {self.message[0]}" if self.message else self.type_name
