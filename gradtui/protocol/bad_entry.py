"""What is raised where a person or another program has written something that gradtui cannot read."""

from __future__ import annotations


class BadEntry(ValueError):  # noqa: N818 - it is an answer, not an error of gradtui
    """An entry, an option or a command that means nothing. The message is one line."""
