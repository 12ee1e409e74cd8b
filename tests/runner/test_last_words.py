"""What happened in the last fraction of a second is reported too."""

from __future__ import annotations

import os

import pytest

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetTrainable
from gradtui.runner.plain import PlainReporter
from gradtui.transport.in_process import EventQueue


def test_lines_name_rank_on_shared_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    PlainReporter(EventQueue(), rank=3).say("a line")
    assert capfd.readouterr().err == f"gradtui: rank 3: a line{os.linesep}"


@pytest.mark.parametrize("silent", [False, True])
def test_end_of_log_is_written_before_closing_lines(silent: bool, capfd: pytest.CaptureFixture[str]) -> None:
    queue = EventQueue()
    reporter = PlainReporter(queue, silent=silent)
    reporter.start()
    queue.put(ev.CommandApplied(1.0, 3, SetTrainable(1, "fc2", False), "froze fc2", ()))
    reporter.finish()
    assert capfd.readouterr().err == ("" if silent else f"gradtui: step 3: froze fc2{os.linesep}")
