"""Ask live runs."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from gradtui.serving.messages import MOST_ANSWER, PROTOCOL, Connection
from gradtui.serving.sockets import SUFFIX

_CONNECT_S = 2.0
_ANSWER_S = 20.0


class NoAnswerError(Exception):
    """A run gives no answer. The message is one line."""


def ask(directory: Path, id_: str, what: str, **more: Any) -> Any:
    """Return the answer of a run.

    Raises:
        NoAnswerError: there is no such run, or it does not answer, or cannot be asked this.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(_CONNECT_S)
            connected.connect(str(directory / f"{id_}{SUFFIX}"))
            connected.settimeout(_ANSWER_S)
            connection = Connection(connected, MOST_ANSWER)
            connection.send({"protocol": PROTOCOL, "ask": what, **more})
            answer = connection.receive()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoAnswerError(f"there is no run {id_}; gradtui runs lists them") from None
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"run {id_} does not answer: {error}") from None
    if not isinstance(answer, dict) or "answer" not in answer:
        reason = answer.get("error") if isinstance(answer, dict) else None
        raise NoAnswerError(f"run {id_} does not answer: {reason or 'it has ended'}")
    return answer["answer"]


def live_runs(directory: Path) -> list[dict[str, Any]]:
    """Return the status of each live run, the newest first. Sockets of runs that are gone are removed."""
    found = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if _is_stale(path):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        with contextlib.suppress(NoAnswerError):
            status = ask(directory, path.name.removesuffix(SUFFIX), "status")
            if isinstance(status, dict):
                found.append({"id": path.name.removesuffix(SUFFIX), **status})
    return sorted(found, key=lambda each: str(each.get("since")), reverse=True)


def _is_stale(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(_CONNECT_S)
            connected.connect(os.fspath(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
