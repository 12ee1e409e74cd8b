"""A script recurses as deep under gradtui as under plain python, at its top level and wherever torch calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradtui import call_depth
from gradtui.call_depth import LEAVE_OUT, CallCount

ROOT = Path(__file__).parents[1]

SCRIPT = """
import sys

def deepest(calls):
    try:
        return deepest(calls + 1)
    except RecursionError:
        return calls

print(sys.getrecursionlimit(), deepest(1))
sys.setrecursionlimit(333)
print(sys.getrecursionlimit(), deepest(1))

def too_low(calls):
    if calls:
        return too_low(calls - 1)
    try:
        sys.setrecursionlimit(20)
    except RecursionError as error:
        print(error)

too_low(50)

def endless():
    endless()

endless()
"""


def said(directory: Path, *words: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], cwd=directory, env=environment, capture_output=True, text=True, timeout=100
    )
    # Of the traceback the last frames: plain python begins that of a module with those of runpy.
    return (
        done.returncode,
        done.stdout,
        done.stderr.rpartition(", in <module>\n")[2].partition("\ngradtui: ")[0].rstrip(),
    )


@pytest.mark.parametrize("words", [["deep.py"], ["-m", "deep"], ["package"]], ids=["a file", "a module", "a directory"])
def test_a_script_gets_as_deep_as_under_plain_python(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "deep.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(SCRIPT, encoding="utf-8")
    plain = said(tmp_path, *words)
    assert plain[0] == 1
    assert len(plain[1].splitlines()) == 3
    assert plain[2].endswith("RecursionError: maximum recursion depth exceeded")
    assert said(tmp_path, "-m", "gradtui", "--plain", *words) == plain


def below(calls: int, act: Callable[[], int]) -> int:
    return act() if calls == 0 else below(calls - 1, act)


def test_the_count_is_that_of_the_calls_and_independent_of_the_limit() -> None:
    count, limit = call_depth.of_main_thread(), sys.getrecursionlimit()
    here = count.in_use()
    assert below(7, count.in_use) == here + 8
    try:
        sys.setrecursionlimit(limit + 50)
        assert count.in_use() == here
    finally:
        sys.setrecursionlimit(limit)


def deepest(count: CallCount) -> int:
    """How many calls fit above the caller's."""
    try:
        return 1 + deepest(count)
    except RecursionError:
        return 0


def test_a_call_that_is_left_out_makes_room_for_one_more() -> None:
    count = call_depth.of_main_thread()
    plain = deepest(count)
    count.cell[0] += 5 * LEAVE_OUT
    try:
        assert deepest(count) == plain + 5
    finally:
        count.cell[0] -= 5 * LEAVE_OUT
    assert deepest(count) == plain


def test_another_thread_finds_a_count_without_effect() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(call_depth.of_main_thread.__wrapped__).result()
    found.cell[0] += 5
    assert found.thread == 0
    assert found.spare[0] == 0
