"""The header of a recording: what is known of a run before it begins."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from typing import Any

from gradtui.configuration.settings import Settings
from gradtui.system.version import __version__


def header_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the header for a run. The version of torch and the device follow once they are known."""
    return {
        "gradtui": __version__,
        "python": platform.python_version(),
        "script": settings.target.name,
        "arguments": list(settings.target.masked.arguments),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "began": time.time(),
        "rank": _number(environ.get("RANK")),
        "ranks": _number(environ.get("WORLD_SIZE")),
        "rules": list(settings.rules) if settings.rules is not None else None,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
