"""Write what a short run has found as the last line of stdout."""

from __future__ import annotations

import contextlib
import sys


def print_last(text: str) -> None:
    """Write a line to stdout, after all that the script has written there.

    An empty line comes first: the script may have left its last line open, as it does where it is stopped in a step.
    """
    with contextlib.suppress(Exception):  # the script may have replaced or closed it
        sys.stdout.flush()
    stream = sys.__stdout__ if sys.__stdout__ is not None and not sys.__stdout__.closed else sys.stderr
    stream.write(f"\n{text}\n")
    stream.flush()
