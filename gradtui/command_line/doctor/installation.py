"""What belongs to gradtui on this machine: packages, directories, settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from gradtui.command_line.doctor.page import Lack, Part
from gradtui.configuration.config_files import user_file
from gradtui.configuration.in_force import configuration
from gradtui.run.text.units import short_bytes
from gradtui.system.optional_packages import install_words, version_of
from gradtui.system.own_directories import state_directory

_EXTRAS = {
    "zstandard": ("zstd", "compressed recordings (.zst) can be neither written nor read"),
    "mcp": ("mcp", "gradtui mcp does not work"),
    "vl-convert-python": ("report", "gradtui report has no charts; --format md works"),
    "pyarrow": ("parquet", "gradtui export --parquet does not work"),
    "tensorboard": ("tensorboard", "gradtui export --tensorboard does not work"),
    "textual-serve": ("serve", "no dashboard in a browser: --serve does not work"),
}
"""Optional packages: the extra that installs each, which is its name on the page, and what its lack costs."""
_NEEDED = {
    "textual": "no dashboard",
    "rich": "no dashboard",
    "plotext": "plots are drawn with braille characters only",
    "click": "no command line",
    "psutil": "no figures of host memory",
    "platformdirs": "no settings of the user",
    "nvidia-ml-py": "no figures of the NVIDIA driver",
}
"""Packages that the installation of gradtui brings along, and what the lack of each costs."""
_OTHERS = ("numpy", "lightning", "transformers", "accelerate", "peft", "deepspeed", "ipython")
"""Packages that work on the same training: their versions are of use in a report of an error."""
_MIN_FREE = 64 << 20
"""Bytes on a disk below which logs and recordings have no room."""


def packages_part() -> Part:
    """Return the versions of the packages, and what those that are missing cost."""
    found = {name: version_of(name) for name in (*_NEEDED, *_EXTRAS, *_OTHERS)}
    lacks = [
        Lack(name, f"the package {name} is not installed", cost, f"pip install {name}", name != "nvidia-ml-py")
        for name, cost in _NEEDED.items()
        if found[name] is None
    ]
    lacks += [
        Lack(extra, f"the package {name} is not installed", cost, install_words(name, extra))
        for name, (extra, cost) in _EXTRAS.items()
        if found[name] is None
    ]
    rows = (
        ", ".join(f"{name} {known}" for name, known in found.items() if known is not None and name not in _OTHERS),
        ", ".join(f"{name} {found[name]}" for name in _OTHERS if found[name] is not None),
    )
    return Part("packages", found, tuple(row for row in rows if row), tuple(lacks))


def directories_part() -> Part:
    """Return the directories of gradtui with their modes. None is made."""
    wanted = [("settings", user_file().parent), ("logs and reports", state_directory())]
    if sys.platform != "win32":
        from gradtui.remote.serving.sockets import socket_directories

        wanted += [("sockets", each) for each in islice(socket_directories(), 1)]
    wanted += [("temporary files", Path(each)) for each in _temporary()]
    found = [_directory(name, path) for name, path in wanted]
    lacks = [lack for each in found for lack in _directory_lacks(each)]
    if not any(each["is_writable"] for each in found[1:]):
        lacks.append(Lack("directories", "no directory is writable", "no logs, reports and sockets", "TMPDIR", True))
    return Part("directories", found, tuple(map(_row, found)), tuple(lacks))


def _temporary() -> Iterator[str]:
    # `gettempdir` raises if no directory is writable.
    with contextlib.suppress(OSError):
        yield tempfile.gettempdir()


def _directory(name: str, path: Path) -> dict[str, Any]:
    """Return the facts about a directory. `is_writable` of a directory that does not exist is that of its nearest ancestor."""
    nearest = next(each for each in (path, *path.parents) if os.path.exists(each))
    known = path.stat() if nearest == path else None
    free = shutil.disk_usage(nearest).free
    return {
        "name": name,
        "path": str(path),
        "mode": f"{stat.S_IMODE(known.st_mode):04o}" if known is not None else None,
        "is_own": known.st_uid == os.getuid() if known is not None and sys.platform != "win32" else None,
        "is_writable": nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK),
        "free": free,
    }


def _row(facts: Mapping[str, Any]) -> str:
    state = [facts["mode"] or "not made yet", f"{short_bytes(facts['free'])} free"]
    state += [] if facts["is_writable"] else ["not writable"]
    state += ["of another user"] if facts["is_own"] is False and facts["name"] != "temporary files" else []
    return f"{facts['path']} ({facts['name']}): {', '.join(state)}"


def _directory_lacks(facts: Mapping[str, Any]) -> Iterator[Lack]:
    name, path = facts["name"], facts["path"]
    if not facts["is_writable"]:
        yield Lack(
            f"directory of {name}",
            f"{path} is not writable",
            "settings cannot be saved"
            if name == "settings"
            else "what belongs there goes to a directory for temporary files",
            "make it writable for you, or set XDG_STATE_HOME (XDG_RUNTIME_DIR, XDG_CONFIG_HOME, TMPDIR) to one that is",
        )
    elif facts["free"] < _MIN_FREE and name != "settings":
        yield Lack(
            f"directory of {name}",
            f"{path} has {short_bytes(facts['free'])} free",
            "logs, reports and recordings may be cut short",
            "remove files, or set XDG_STATE_HOME to another disk",
        )


def settings_part(folder: Path) -> Part:
    """Return the settings that differ from the defaults, for a run in this directory, and the entries that are wrong."""
    found = configuration(folder, {}, os.environ)
    changed = {name: value for name, value in found.values.items() if value.origin != "default"}
    facts = {
        "changed": [{"name": name, "value": value.text, "origin": value.origin} for name, value in changed.items()],
        "problems": list(found.problems),
    }
    rows = [f"{name} = {value.text} ({value.origin})" for name, value in changed.items()]
    lacks = [
        Lack("settings", problem, "this entry is ignored", "gradtui config lists all settings", True)
        for problem in found.problems
    ]
    return Part("settings", facts, tuple(rows or ["all as by default"]), tuple(lacks))
