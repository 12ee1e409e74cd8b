"""Whether a process of this machine runs. POSIX; elsewhere every process does."""

from __future__ import annotations

import contextlib
import os


def is_running(process: int) -> bool:
    """Return whether a process runs: one that has ended, and that its parent has not waited for, does not."""
    if os.name != "posix" or process <= 0:
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{process}/stat", "rb") as file:
        # The name of the program stands in brackets, and may have any characters.
        return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    return True
