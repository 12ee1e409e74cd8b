"""The supervisor's report on a training process that ended without restoring the terminal. Pure except for reading files."""

from __future__ import annotations

import signal

from gradtui.own_frames import PACKAGE_DIRECTORY
from gradtui.transport.log_tail import clip, last_lines

OUTPUT_LINES = 20
"""Number of the log's last lines shown."""

DUMP_LINES = 40
"""Maximum number of lines of the crashing thread's stack shown."""


def describe(killed_by: int | None, exit_code: int, log: str | None, dump: str, *, width: int | None = None) -> str:
    """Return the report on an unclean end: what happened, the end of the output, and where the crash was.

    Args:
        killed_by: the signal, or None for a process that exited by itself without closing its screen (`os._exit`).
        exit_code: the exit code to report in that case.
        log: the file that received the output at that time; None if it went to the terminal.
        dump: the dump of faulthandler, possibly empty.
        width: columns of the terminal, to which repeated lines are cut; None to leave them whole.
    """
    if killed_by is not None:
        happened = f"training process died from {_signal_name(killed_by)} ({killed_by})"
    else:
        happened = f"training process left without closing its screen (exit code {exit_code})"
    lines = [f"gradtui: {happened}" + (f"; output is in {log}" if log is not None else "")]
    tail = last_lines(log, OUTPUT_LINES) if log is not None else []
    if tail:
        lines += ["gradtui: last lines of the output:", *(clip(f"  {line}", width) for line in tail)]
    stack = _crashing_thread(dump)
    if stack:
        lines += ["gradtui: where it was:", *(f"  {line}" for line in stack)]
    return "\n".join(lines) + "\n"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal"


def _crashing_thread(dump: str) -> list[str]:
    """Return the part of faulthandler's dump about the thread that crashed, without gradtui's frames.

    The format of the dump is a headline, then one block per thread separated by blank lines; the block of the crashing thread
    begins with "Current thread". A crash in a thread without python code has no such block; then only the headline is returned.
    """
    blocks = [block.splitlines() for block in dump.strip().split("\n\n")]
    kept = blocks[0][:1] if dump.strip() else []
    for block in blocks:
        if block and block[0].startswith(("Current thread", "Stack (most recent")):
            kept += [line for line in block if f'File "{PACKAGE_DIRECTORY}' not in line][:DUMP_LINES]
    return kept
