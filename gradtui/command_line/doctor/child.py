"""Ask torch and the driver in child processes. If one of them hangs or crashes, only its own facts are missing."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MAX = 1 << 20
"""Bytes of an answer."""

# The path of this process: the directory in which the command runs may have a file named torch.py or json.py.
_START = (
    "import sys; name, *sys.path[:] = sys.argv[1:]; from importlib import import_module; import_module(name).main()"
)


class Child:
    """A process that writes its facts as JSON, one object a line. It may be started long before it is asked."""

    def __init__(self, module: str) -> None:
        """Start `module`, whose `main` calls `tell`."""
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self.trouble: str | None = None
        """Why there are no more answers, in a clause; empty if there were no more to give."""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, module, *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self.trouble = f"no process can be started: {error.strerror or error}"
        else:
            threading.Thread(target=self._read, args=(self._process,), name="gradtui-doctor", daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Read the lines. The last one is empty."""
        assert process.stdout is not None
        with process.stdout as stream, contextlib.suppress(OSError):
            while line := stream.readline(_MAX):
                self._lines.put(line)
        self._lines.put(b"")

    def answer(self, within_s: float) -> Mapping[str, Any] | None:
        """Return the next answer. Return None if the process gives none within `within_s` seconds; `trouble` then says why."""
        if self.trouble is not None:
            return None
        try:
            line = self._lines.get(timeout=within_s)
        except queue.Empty:
            self.trouble = f"no answer within {within_s:g} s"
            return None
        if not line:
            self.trouble = self._ending()
            return None
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.trouble = "an answer that cannot be read"
            return None
        return answer

    def answers(self, within_s: float) -> Iterator[Mapping[str, Any]]:
        """Yield the answers until the last one. The process has `within_s` seconds for each."""
        while (answer := self.answer(within_s)) is not None:
            yield answer

    def stop(self) -> None:
        """End the process. One that the kernel holds in a call of the driver is left behind."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)

    def _ending(self) -> str:
        """Return how the process ended, in a clause; empty if it had no more to say."""
        code: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=1.0)
        if not code:
            return ""
        with contextlib.suppress(ValueError):
            return f"the process that asked was killed by {signal.Signals(-code).name}"
        return f"the process that asked ended with exit code {code}"


def tell(answers: Iterable[Mapping[str, Any]]) -> None:
    """Write the answers of a child as they come. What libraries print goes elsewhere."""
    stream = os.dup(1)
    os.dup2(2, 1)
    for each in answers:
        os.write(stream, json.dumps(each).encode() + b"\n")
