"""What a command line asks to be run."""

from __future__ import annotations

from gradtui.configuration.settings import Target


def script(path: str, *arguments: str) -> Target:
    """Return a script with its arguments."""
    return Target(path, None, arguments)


def module(name: str, *arguments: str) -> Target:
    """Return a module (`-m`) with its arguments."""
    return Target(None, name, arguments)
