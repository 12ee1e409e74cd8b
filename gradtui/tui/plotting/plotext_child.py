"""The plot child: reads drawings on fd 0, has plotext draw them, writes the texts to fd 1. A process of its own.

It exists because plotext's C++ kernel can abort its process, and because its thousands of foreign calls a picture fight
for the GIL. It must leave no trace in the terminal or in the run: no output but its answers, no signals from the
keyboard, no core dump, low priority, and an end of its own when it draws for too long, when its input closes or when
its parent is gone.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from gradtui.tui.plotting.messages import Drawing, MessageReader, decode_drawing, packed

NO_PLOTEXT = 3
"""The exit code where plotext cannot be imported."""

_NICENESS = 10
_SECONDS_PER_DRAWING = 10
_MEMORY = 1 << 30
_PARENT_CHECK_SECONDS = 2.0
_READ_SIZE = 1 << 16


def main(arguments: list[str]) -> int:
    """Serve until the input ends. `arguments` is the process id of the parent; returns the exit code."""
    parent = int(arguments[0])
    restrain()
    answers = _private_output()
    try:
        from gradtui.tui.plotting import plotext_figure

        plotext_figure.prepare()
    except Exception:  # noqa: BLE001  # whatever is wrong with the installed plotext, the parent draws by itself
        return NO_PLOTEXT
    with suppress(BrokenPipeError):
        serve(0, answers, parent, plotext_figure.draw)
    return 0


def restrain() -> None:
    """Make this process harmless: deaf to Ctrl+C, polite, without core dumps, with a bound on its memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The starting thread's signal mask is inherited, and the alarm that ends a drawing out of hand must get through.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(OSError):
        os.nice(_NICENESS)
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, _MEMORY)):
        with suppress(OSError, ValueError):
            _, hard = resource.getrlimit(limit)
            resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def serve(source: int, answers: int, parent: int, draw: Callable[[Drawing], str]) -> None:
    """Answer each message with a text of the same number; an empty text says that the drawing failed.

    Raises BrokenPipeError once nobody reads the answers.
    """
    reader = MessageReader()
    while True:
        if not select.select([source], [], [], _PARENT_CHECK_SECONDS)[0]:
            # A forked worker of the script may hold the other end of the pipe open after our parent is gone.
            if os.getppid() != parent:
                return
            continue
        data = os.read(source, _READ_SIZE)
        if not data:
            return
        for number, payload in reader.feed(data):
            # The default action of SIGALRM ends the process even while it is inside C++.
            signal.alarm(_SECONDS_PER_DRAWING)
            try:
                text = draw(decode_drawing(payload))
            except Exception:  # noqa: BLE001  # one drawing that fails costs one picture
                text = ""
            signal.alarm(0)
            _write_all(answers, packed(number, text.encode()))


def _private_output() -> int:
    """Move fd 1 to a number of its own and put /dev/null there: plotext prints hints to the standard output."""
    answers = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return answers


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
