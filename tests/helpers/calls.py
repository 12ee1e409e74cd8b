"""Counted calls: what something costs, whatever else the machine does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import gradtui

OURS = str(Path(gradtui.__file__).parent)


class Counted:
    """Calls of Python functions: of gradtui and of `others`, and of all. A generator counts each time it goes on."""

    def __init__(self, *others: CodeType) -> None:
        self.ours = self.all = 0
        self.files: set[str] = set()
        """Those of gradtui whose functions were called."""
        self._others = others

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self.all += 1
            is_of_gradtui = frame.f_code.co_filename.startswith(OURS)
            self.ours += is_of_gradtui or frame.f_code in self._others
            if is_of_gradtui:
                self.files.add(frame.f_code.co_filename)


@contextmanager
def counting(*others: CodeType) -> Iterator[Counted]:
    """Count the calls that this thread makes in the context."""
    counted, before = Counted(*others), sys.getprofile()
    sys.setprofile(counted)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], object], *others: CodeType) -> int:
    """Return how many functions of gradtui, and of `others`, the work calls."""
    with counting(*others) as counted:
        work()
    return counted.ours
