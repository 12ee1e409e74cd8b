"""What python does after the last line: threads are waited for, exit callbacks run once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.programs import run_program

from gradtui.probe.runtime import RunStopped
from gradtui.runner.ending import conclude, wait_for_threads


@pytest.mark.parametrize(("raised", "is_named"), [(RunStopped(2), False), (SystemExit(3), True)])
def test_only_what_script_raised_is_called_its_error(raised: SystemExit, is_named: bool) -> None:
    """gradtui ends a run by an exception within the script, which has frames of it. Its reason is said elsewhere."""
    with pytest.raises(SystemExit) as caught:
        raise raised
    outcome = conclude(caught.value)
    assert (outcome.exit_code, outcome.uncaught is not None) == (raised.code, is_named)


def test_started_threads_are_awaited_except_idle_workers() -> None:
    done: list[str] = []
    go = threading.Event()

    def first() -> None:
        go.wait()
        threading.Thread(target=lambda: done.append("second")).start()
        done.append("first")

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(sum, (1, 2)).result() == 3
        forever = threading.Event()
        threading.Thread(target=forever.wait, daemon=True).start()
        threading.Thread(target=first).start()
        go.set()
        wait_for_threads()
        forever.set()
    assert sorted(done) == ["first", "second"]


def test_exit_callbacks_run_once_and_in_order() -> None:
    code = (
        "import atexit; from gradtui.runner.ending import run_exit_callbacks as run\n"
        "atexit.register(print, 'registered first'); atexit.register(print, 'registered last'); run(); print('after')"
    )
    assert run_program(code).stdout.splitlines() == ["registered last", "registered first", "after"]
