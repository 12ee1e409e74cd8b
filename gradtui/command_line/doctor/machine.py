"""The machine with its Python, and the terminal."""

from __future__ import annotations

import locale
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from gradtui.command_line.doctor.page import Lack, Part
from gradtui.run.text.units import short_bytes
from gradtui.system.free_memory import memory_limit

MIN_SIZE = (40, 12)
"""Columns and rows below which little of the dashboard is left."""
_MARKS = {"docker": "/.dockerenv", "podman": "/run/.containerenv"}
"""Files that a container has."""


def python_part() -> Part:
    """Return the interpreter that runs gradtui."""
    is_virtual = sys.prefix != sys.base_prefix
    facts = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable or "",
        "is_virtual_environment": is_virtual,
        "gradtui": str(Path(__file__).resolve().parents[2]),
    }
    where = ", a virtual environment" if is_virtual else ""
    rows = (
        f"{facts['version']} {facts['implementation']}, {facts['executable']}{where}",
        f"gradtui in {facts['gradtui']}",
    )
    return Part("python", facts, rows)


def system_part() -> Part:
    """Return the system, its processors and its memory."""
    memory = psutil.virtual_memory()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip(),
        "container": _container(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable,
        "memory": memory.total,
        "memory_available": memory.available,
        "memory_limit": memory_limit(),
    }
    system = f"{facts['system']} {facts['release']} {facts['machine']}"
    limit = f", limited to {short_bytes(facts['memory_limit'])}" if facts["memory_limit"] is not None else ""
    sizes = f"{short_bytes(memory.available)} of {short_bytes(memory.total)} available{limit}"
    rows = [
        ", ".join([system, *([facts["libc"]] if facts["libc"] else [])]),
        f"{usable} of {facts['cpus']} CPUs, memory: {sizes}",
    ]
    if facts["container"] is not None:
        rows.append(f"in a container ({facts['container']})")
    return Part("system", facts, tuple(rows))


def _container() -> str | None:
    """Return the kind of container that this process is in, None if there is no sign of one."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.environ.get("SINGULARITY_NAME") or os.environ.get("APPTAINER_NAME"):
        return "apptainer"
    return next((name for name, mark in _MARKS.items() if os.path.exists(mark)), None)


def terminal_part(environ: Mapping[str, str] = os.environ) -> Part:
    """Return what the dashboard could be drawn on."""
    size, why_none = _size(), _why_no_screen(environ)
    facts: dict[str, Any] = {
        "columns": size[0] if size is not None else None,
        "rows": size[1] if size is not None else None,
        "type": environ.get("TERM", ""),
        "program": environ.get("TERM_PROGRAM", ""),
        "colours": colours(environ),
        "encoding": locale.getpreferredencoding(False),
        "within": [
            name for name, mark in (("tmux", "TMUX"), ("screen", "STY"), ("ssh", "SSH_CONNECTION")) if environ.get(mark)
        ],
        "why_no_screen": why_none,
    }
    shape = f"{size[0]}×{size[1]}" if size is not None else "no terminal"
    others = dict.fromkeys([*([facts["program"]] if facts["program"] else []), *facts["within"]])
    row = ", ".join([shape, facts["type"] or "TERM not set", f"{facts['colours']} colours", facts["encoding"], *others])
    return Part("terminal", facts, (row,), tuple(_terminal_lacks(facts, size)))


def _why_no_screen(environ: Mapping[str, str]) -> str | None:
    if sys.platform == "win32":
        return "the dashboard needs POSIX"
    from gradtui.runner.terminal import why_no_screen

    return why_no_screen(environ)


def _size() -> tuple[int, int] | None:
    """Return the columns and rows of the controlling terminal, whatever the output goes to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0))
    except OSError:
        return None
    try:
        size = os.get_terminal_size(terminal)
        return size.columns, size.lines
    except OSError:
        return None
    finally:
        os.close(terminal)


def colours(environ: Mapping[str, str]) -> str:
    """Return how many colours the dashboard has, by what the environment says of the terminal."""
    kind = environ.get("TERM", "")
    if environ.get("NO_COLOR") or kind in ("", "dumb"):
        return "no"
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or kind.endswith("-direct"):
        return "16 million"
    return "256" if "256" in kind or "kitty" in kind else "16"


def _terminal_lacks(facts: Mapping[str, Any], size: tuple[int, int] | None) -> Iterator[Lack]:
    if facts["why_no_screen"] is not None:
        yield Lack(
            "screen",
            f"no dashboard here: {facts['why_no_screen']}",
            "a run has lines on stderr instead, as with --plain",
            "run gradtui in a terminal, and pipe nothing; attach to the run from a terminal with gradtui attach",
        )
    if size is not None and (size[0] < MIN_SIZE[0] or size[1] < MIN_SIZE[1]):
        yield Lack("terminal size", f"{size[0]}×{size[1]} is small", "most panels have no room", "80×24 or more")
    if facts["colours"] in ("no", "16"):
        yield Lack(
            "colours",
            f"{facts['colours']} colours",
            "states and memory categories are told apart by letters and patterns more than by colour",
            "unset NO_COLOR; a terminal with 256 colours (TERM=xterm-256color), or COLORTERM=truecolor if it has them",
        )
    if "utf" not in facts["encoding"].lower():
        yield Lack(
            "Unicode",
            f"the locale's encoding is {facts['encoding']}",
            "curves, bars and frames may be unreadable",
            "LC_ALL=C.UTF-8, in a terminal with UTF-8",
        )
