"""Add gradtui to a process that it did not start, for as long as this process looks at it (Python 3.14 and later)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from gradtui.remote.live.client import LiveError
from gradtui.remote.live.other_process import why_not_added, why_refused
from gradtui.remote.serving.addresses import UnixAddress
from gradtui.remote.serving.client import Client, NoAnswerError
from gradtui.remote.serving.sockets import socket_directory
from gradtui.system.printable import printable, write_line
from gradtui.system.version import __version__

Inject = Callable[[int, str], None]
"""Lets a process run a file: `sys.remote_exec`."""
_PACKAGE = Path(__file__).resolve().parents[1]
_INJECTED = _PACKAGE / "watching" / "injected.py"
_LIMIT_S = 120.0
"""Seconds in which the process must reach Python code, and then a line outside torch."""
_TO_DO = {
    "": "reach Python code",
    "waits": "reach a line outside torch",
    "adds": "import gradtui",
}
_DONE = {name: words.replace("reach", "reached").replace("import", "imported") for name, words in _TO_DO.items()}
"""By what the process has said so far: what it does next."""
_SAY_S = 1.0
_POLL_S = 0.05


@contextlib.contextmanager
def added_to(process: int, objection: str | None = None) -> Iterator[UnixAddress]:
    """Add gradtui to a process, and remove it when the context ends. A line on stderr says what comes of either.

    Args:
        process: its number.
        objection: why it is not added, even if it could be; None for no reason.

    Raises:
        LiveError: it cannot be added there, or is not.
        SystemExit: the user has given up by Ctrl+C while the process was awaited.
    """
    reason = why_not_added(process) or objection
    if reason is not None:
        raise LiveError("no_run", reason)
    inject: Inject | None = getattr(sys, "remote_exec", None)
    assert inject is not None
    try:
        address, seconds = _Injection(process, inject).run()
    except KeyboardInterrupt:
        write_line(f"given up: process {process} runs on without gradtui")
        raise SystemExit(128 + signal.SIGINT) from None
    write_line(f"gradtui was added to process {process}, which it held up for {seconds:.1f} s")
    try:
        client = Client(address)
        client.ask("stay")
    except NoAnswerError as error:
        raise LiveError("no_answer", str(error)) from None
    with client:
        try:
            yield address
        finally:
            write_line(_left(process, client))


def _left(process: int, client: Client) -> str:
    """Leave a run, and return what came of it."""
    answer: Any = None
    with contextlib.suppress(OSError, ValueError, NoAnswerError):
        client.send_lines(["{}"])
        answer = next((json.loads(line) for line in client.lines()), None)
    if not isinstance(answer, dict):
        return f"process {process} has ended"
    if answer.get("others"):
        return f"left; other viewers look at process {process}, and gradtui stays there as long as they do"
    if answer.get("removed"):
        return f"gradtui was removed from process {process}, which runs on without it"
    return f"left; gradtui removes itself from process {process} when that runs its next line outside torch"


class _Injection:
    """One attempt to add gradtui to a process.

    Args:
        process: its number.
        inject: see `Inject`.
    """

    def __init__(self, process: int, inject: Inject) -> None:
        self._process, self._inject = process, inject
        # Only its owner can enter it.
        self._place = Path(tempfile.mkdtemp(prefix="gradtui-attach-"))
        self._script = self._place / "script.py"
        self._has_run = False
        """Whether the process has run the script."""

    def run(self) -> tuple[UnixAddress, float]:
        """Return where the run listens, and the seconds that adding gradtui has taken. Raises `LiveError`."""
        try:
            self._write()
            return self._wait()
        except OSError as error:
            raise LiveError("no_run", f"nothing can be written for process {self._process}: {error}") from None
        finally:
            self._clear()

    def _write(self) -> None:
        import psutil

        packages = [_PACKAGE.parent, Path(psutil.__file__).parents[1]]
        owner = psutil.Process(self._process).uids().real
        is_own = owner == os.getuid()
        request = {
            "packages": list(dict.fromkeys(map(str, packages))),
            # That of this user, so that `gradtui runs` lists it. Another user cannot listen there.
            "directory": str(socket_directory()) if is_own else None,
            "version": __version__,
        }
        source = _INJECTED.read_text(encoding="utf-8")
        for path, text in (
            (self._place / "request", json.dumps(request)),
            (self._script, f"{source}\n\nadd_gradtui({str(self._place)!r})\n"),
        ):
            path.touch(0o600)
            path.write_text(text, encoding="utf-8")
            if not is_own:
                os.chown(path, owner, -1)
        if not is_own:
            os.chown(self._place, owner, -1)

    def _wait(self) -> tuple[UnixAddress, float]:
        self._send()
        began = sent = monotonic()
        has_said, reached = False, ""
        while True:
            answer = self._answer()
            if "refused" in answer:
                raise LiveError(
                    "no_run", printable(f"gradtui cannot be added to process {self._process}: {answer['refused']}")
                )
            if "path" in answer:
                return UnixAddress(Path(answer["path"])), float(answer["seconds"])
            now, stage = monotonic(), _stage(answer)
            if stage != reached:
                reached, began, has_said, self._has_run = stage, now, False, True
            if now - began > _LIMIT_S:
                raise LiveError("no_answer", f"process {self._process} has not {_DONE[stage]} in {_LIMIT_S:g} s")
            if now - began > _SAY_S and not has_said:
                has_said = True
                write_line(f"waiting for process {self._process} to {_TO_DO[stage]} (Ctrl+C gives up)")
            if not _is_alive(self._process):
                raise LiveError("no_run", f"process {self._process} has ended")
            if stage == "waits" and now - sent > _SAY_S:
                # It may have gone on into a function that was not asked. It may also be about to end.
                with contextlib.suppress(OSError, RuntimeError):
                    self._inject(self._process, str(self._script))
                sent = now
            sleep(_POLL_S)

    def _send(self) -> None:
        try:
            self._inject(self._process, str(self._script))
        except (OSError, RuntimeError) as error:
            self._has_run = True  # it will not
            raise LiveError("no_run", why_refused(self._process, error)) from None

    def _answer(self) -> dict[str, Any]:
        try:
            found = json.loads((self._place / "answer").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _clear(self) -> None:
        """Remove the files. A process that has yet to run the script would report on its stderr that it is missing."""
        if self._has_run or self._answer() or not _is_alive(self._process):
            shutil.rmtree(self._place, ignore_errors=True)
            return
        (self._place / "request").unlink(missing_ok=True)
        self._script.write_text(
            f"import shutil\nshutil.rmtree({str(self._place)!r}, ignore_errors=True)\n", encoding="utf-8"
        )


def _stage(answer: dict[str, Any]) -> str:
    return "adds" if "adds" in answer else "waits" if answer else ""


def _is_alive(process: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
