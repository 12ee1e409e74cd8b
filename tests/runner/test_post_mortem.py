"""The report on an unclean end, from what the supervisor knows."""

from __future__ import annotations

import signal
from pathlib import Path

from gradtui.runner.supervisor import DUMP_LINES, OUTPUT_LINES, describe
from gradtui.system.own_frames import PACKAGE_DIRECTORY

DUMP = f"""Fatal Python error: Segmentation fault

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3/selectors.py", line 314 in select
  File "/usr/lib/textual/app.py", line 1 in run

Current thread 0x00007f02 (most recent call first):
  File "/home/person/train.py", line 12 in step
  File "{PACKAGE_DIRECTORY}probe/wrapper.py", line 3 in call
  File "/home/person/train.py", line 40 in <module>
  File "{PACKAGE_DIRECTORY}runner/script.py", line 100 in run

Extension modules: numpy.core (total: 1)
"""


def test_signal_with_output_and_stack(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)) + "\x1b[31m\rlast\n")
    lines = describe(signal.SIGSEGV, 139, str(log), DUMP).splitlines()
    assert lines[0] == f"gradtui: training process died from SIGSEGV (11); output is in {log}"
    assert lines[1] == "gradtui: last lines of the output:"
    assert lines[2 : 2 + OUTPUT_LINES] == [f"  line {number}" for number in range(101 - OUTPUT_LINES, 100)] + ["  last"]
    assert lines[2 + OUTPUT_LINES :] == [
        "gradtui: where it was:",
        "  Fatal Python error: Segmentation fault",
        "  Current thread 0x00007f02 (most recent call first):",
        '    File "/home/person/train.py", line 12 in step',
        '    File "/home/person/train.py", line 40 in <module>',
    ]


def test_repeated_lines_are_cut_and_log_named(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("x" * 500 + "\n")
    lines = describe(signal.SIGSEGV, 139, str(log), "", width=40).splitlines()
    assert str(log) in lines[0]
    assert lines[2] == "  " + "x" * 37 + "…"


def test_nothing_known_but_the_signal() -> None:
    assert describe(signal.SIGKILL, 137, None, "") == "gradtui: training process died from SIGKILL (9)\n"
    assert "signal (63)" in describe(63, 191, None, "")


def test_left_without_closing(tmp_path: Path) -> None:
    missing = tmp_path / "missing.log"
    report = describe(None, 4, str(missing), "")
    assert report == (
        f"gradtui: training process left without closing its screen (exit code 4); output is in {missing}\n"
    )


def test_long_stacks_are_cut() -> None:
    frames = "".join(f'  File "/home/person/train.py", line {n} in f\n' for n in range(500))
    report = describe(signal.SIGSEGV, 139, None, f"Fatal Python error: x\n\nCurrent thread 0x1:\n{frames}")
    assert report.count("train.py") == DUMP_LINES - 1
