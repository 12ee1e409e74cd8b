"""The entry that stands for torch's own call of a module in tracebacks: the right line, and nothing of a caller's."""

from __future__ import annotations

import inspect
import linecache
import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from gradtui import own_frames
from gradtui.probe.call_entry import keep_in_tracebacks

CALL_IMPL = nn.Module._call_impl.__code__


def noted(original: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(own_frames, "_BEFORE", {})
    threads = threading.active_count()
    keep_in_tracebacks(original)
    assert threading.active_count() == threads
    return own_frames._BEFORE.get(CALL_IMPL)


def test_it_is_the_line_that_calls_and_remembers_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    original = inspect.unwrap(nn.Module.__call__)
    frame, _, line = noted(original, monkeypatch)
    assert frame.f_code is original.__code__
    assert linecache.getline(frame.f_code.co_filename, line).strip() == "return self._call_impl(*args, **kwargs)"
    above = frame.f_back
    while above is not None:
        assert above.f_code.co_filename.startswith(own_frames.PACKAGE_DIRECTORY), (
            "a frame of a caller would be kept alive"
        )
        above = above.f_back


def test_a_call_that_asks_for_more_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any, *args: Any) -> Any:
        return self.something_new._call_impl(*args)

    assert noted(other, monkeypatch) is None
    monkeypatch.setattr("gradtui.probe.call_entry.is_plain_module_call", lambda original: True)
    assert noted(other, monkeypatch) is None
