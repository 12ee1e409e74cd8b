"""A process that gradtui did not start: whether it can be added there, or how to start it so that gradtui shows it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradtui.protocol.secrets import mask

if TYPE_CHECKING:
    import psutil

_VERSION = re.compile(r"python(\d+)\.(\d+)")
_FRAMEWORK = re.compile(r"\.framework/Versions/(\d+)\.(\d+)/")
"""Where the program of macOS has its version."""
_PYTHON = re.compile(r"python(?:[0-9.]+)?t?(?:\.exe)?", re.IGNORECASE)
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""The options of python whose value may be the next word (https://docs.python.org/3/using/cmdline.html)."""


FIRST_VERSION = (3, 14)
"""The first Python that runs code which another process gives it: `sys.remote_exec`, PEP 768."""
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def why_not_added(process: int) -> str | None:
    """Return in one line why gradtui cannot be added to a process that it did not start, and what to do. None if it can be
    tried."""
    import psutil

    try:
        found = psutil.Process(process)
        words = found.cmdline()
        owner = found.uids().real if hasattr(found, "uids") else None
    except psutil.AccessDenied:
        return f"process {process} belongs to another user, who alone can see what it runs"
    except (psutil.Error, OverflowError, ValueError):
        return f"there is no process {process}"
    if not words:
        return f"process {process} has ended"
    if _PYTHON.fullmatch(os.path.basename(words[0])) is None:
        return f"process {process} is no Python: it runs {os.path.basename(words[0])[:80]}"
    # Whether gradtui has started it, only its user can see.
    if owner is not None and owner != os.getuid() and os.getuid():
        return f"process {process} belongs to another user: run gradtui attach as that user, or as root"
    version, own = version_of(found), sys.version_info[:2]
    if (version or own) < FIRST_VERSION:
        return f"gradtui did not start process {process}, and can be added to a Python that runs from 3.14 on; {again(words)}"
    if version is not None and version != own:
        theirs, ours = (".".join(map(str, each)) for each in (version, own))
        return (
            f"process {process} is Python {theirs} and this gradtui is of Python {ours}: use gradtui of Python {theirs}"
        )
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.stat(f"/proc/{process}/root"), os.stat("/")):
            return f"process {process} runs in a container or with another root directory: run gradtui attach there"
    return None


def again(words: Sequence[str]) -> str:
    """Return how to start the program of a command line of python so that gradtui shows it."""
    command = command_with_gradtui(words)
    return (
        f"start it again with {command}"
        if command is not None
        else "write what it runs into a file, and start it with gradtui FILE"
    )


def version_of(process: psutil.Process) -> tuple[int, int] | None:
    """Return the version of Python of a process, by the name of its program or of the library; None if they do not say."""
    import psutil

    # psutil has no `memory_maps` on macOS.
    with contextlib.suppress(psutil.Error, OSError, AttributeError):
        program = process.exe()
        named = _VERSION.search(os.path.basename(program)) or _FRAMEWORK.search(program)
        if named is not None:
            return int(named[1]), int(named[2])
        for each in process.memory_maps():
            if (named := _VERSION.search(os.path.basename(each.path))) is not None and "lib" in each.path:
                return int(named[1]), int(named[2])
    return None


def why_refused(process: int, error: Exception) -> str:
    """Return in one line why `sys.remote_exec` has failed for a process, and what to do."""
    if isinstance(error, ProcessLookupError):
        return f"process {process} has ended"
    if isinstance(error, PermissionError):
        scope = "0"
        with contextlib.suppress(OSError):
            scope = _PTRACE_SCOPE.read_text(encoding="ascii").strip()
        if scope not in ("", "0"):
            return (
                f"the system lets no process change process {process} (kernel.yama.ptrace_scope is {scope}): run gradtui "
                "attach as root, or sudo sysctl kernel.yama.ptrace_scope=0 before"
            )
        return (
            f"the system does not let this user change process {process}: run gradtui attach as root "
            "(in a container: with SYS_PTRACE)"
        )
    if "not enabled" in str(error):
        why = "it runs with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug"
        return f"process {process} accepts no code from outside: {why}"
    return f"gradtui cannot be added to process {process}: {error}"


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
