"""Let a rank write what it prints to a log of its own, so that the screen of its job can say which rank a line is from.

A rank inherits descriptors 1 and 2 of its launcher. Only where they lead to the log of the launching process are they
redirected: what a launcher sends elsewhere (`--redirects`, `--tee`, `--log-dir` of torchrun) stays as it is. Main thread of the
rank, before its script.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from gradtui.runner.standard_streams import flush_python, keep_output, line_buffer
from gradtui.system.descriptors import move_aside
from gradtui.system.rank_environment import OUTPUT, rank_in
from gradtui.system.run_files import lock_while_open
from gradtui.transport.rank_logs import open_log


def use_own_log(environ: Mapping[str, str]) -> None:
    """Redirect descriptors 1 and 2 of a rank from the log of its launcher to its own. Without one nothing changes.

    On error they stay as they are: the lines have no rank then.
    """
    log, rank = environ.get(OUTPUT, ""), rank_in(environ)
    if not log or rank is None:
        return
    with contextlib.suppress(OSError, ValueError):
        shared = os.stat(log)
        found = [descriptor for descriptor in (1, 2) if _leads_to(descriptor, shared)]
        if not found:
            return
        own = move_aside(open_log(log, rank))
        lock_while_open(own)
        flush_python()
        for descriptor in found:
            os.dup2(own, descriptor)
        os.close(own)
        _behave_as_on_a_terminal(found)


def _behave_as_on_a_terminal(descriptors: list[int]) -> None:
    """Write each line at once, and let no full disk end a script that only prints."""
    logs = {descriptor: os.fstat(descriptor) for descriptor in descriptors}
    keep_output(lambda descriptor, _size, _error: descriptor in logs and _leads_to(descriptor, logs[descriptor]))
    if 1 in logs:
        line_buffer()


def _leads_to(descriptor: int, file: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), file)
    return False
