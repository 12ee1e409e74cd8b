"""A process that gradtui did not start: why it cannot be shown, and how to start it so that it can."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from gradtui.protocol.secrets import mask

_PYTHON = re.compile(r"python(?:[0-9.]+)?t?(?:\.exe)?", re.IGNORECASE)
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""The options of python whose value may be the next word (https://docs.python.org/3/using/cmdline.html)."""


def why_not_shown(process: int) -> str:
    """Return in one line why a process without gradtui is not shown, and what to do."""
    import psutil

    try:
        words = psutil.Process(process).cmdline()
    except psutil.AccessDenied:
        return f"process {process} belongs to another user, who alone can see what it runs"
    except (psutil.Error, OverflowError, ValueError):
        return f"there is no process {process}"
    if not words:
        return f"process {process} has ended"
    if _PYTHON.fullmatch(os.path.basename(words[0])) is None:
        return f"process {process} is no Python: it runs {os.path.basename(words[0])[:80]}"
    again = command_with_gradtui(words)
    reason = f"gradtui did not start process {process}, and is not added to one that runs"
    if again is None:
        return f"{reason}; write what it runs into a file, and start it with gradtui FILE"
    return f"{reason}; start it again with {again}"


def command_with_gradtui(words: Sequence[str]) -> str | None:
    """Return the command line that runs the program of a command line of python under gradtui, without secrets.

    None if the program is in the command line itself, or comes from stdin.
    """
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _WITH_VALUE and rest:
            rest.pop(0)
        elif option.startswith("--"):
            continue
        elif (found := re.fullmatch(r"-[a-zA-Z]*?([cm])(.*)", option, re.DOTALL)) and not option.startswith(
            ("-W", "-X")
        ):
            module = [found[2]] if found[2] else rest[:1]
            if found[1] == "c" or not module:
                return None
            return shlex.join(("gradtui", "-m", *module, *mask(rest if found[2] else rest[1:])))
        elif option == "-":
            return None
    return shlex.join(("gradtui", rest[0], *mask(rest[1:]))) if rest else None
