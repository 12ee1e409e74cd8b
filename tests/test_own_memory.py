"""What the viewer's thread takes from malloc is known, and is not in the script's figure."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest
from helpers.programs import run_program

from gradtui.system import own_memory
from gradtui.system.own_memory import OwnMemory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")
KIB = 1 << 10


class Viewer:
    """A thread that allocates and updates on request."""

    def __init__(self) -> None:
        self.held: list[bytearray] = []
        self.updates = True
        self._requests: Queue[int | None] = Queue()
        self._done: Queue[None] = Queue()
        self.memory = OwnMemory()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def grow(self, kib: int) -> int:
        """Allocate, update, and return the growth in KiB."""
        self._requests.put(kib)
        self._done.get()
        return self.memory.grown // KIB

    def end(self) -> None:
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (kib := self._requests.get()) is not None:
            self.held += [bytearray(4 * KIB) for _ in range(kib // 4)]
            if self.updates:
                self.memory._due = 0.0
                self.memory.update()
            self._done.put(None)


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    found = Viewer()
    yield found
    found.end()


# In processes of their own, whose threads and arenas are known


def growth_of_the_viewers_thread(viewer: Viewer) -> None:
    assert abs(viewer.grow(40)) < 40
    others = [bytearray(4 * KIB) for _ in range(500)]
    assert 380 <= viewer.grow(400) < 500
    viewer.held.clear()
    assert viewer.grow(0) < 100
    assert len(others) == 500


def refresh_by_another_thread(viewer: Viewer) -> None:
    viewer.grow(0)
    viewer.updates = False
    assert abs(viewer.grow(400)) < 40
    viewer.memory.refresh()
    assert 380 <= viewer.memory.grown // KIB < 500


def main_thread_without_an_arena(_: Viewer) -> None:
    memory = OwnMemory()
    memory.update()
    assert not memory._arenas


@pytest.mark.parametrize(
    "check", [growth_of_the_viewers_thread, refresh_by_another_thread, main_thread_without_an_arena]
)
def test_what_the_viewers_thread_takes_is_known(check: Callable[[Viewer], None]) -> None:
    code = f"import {__name__} as tests; viewer = tests.Viewer()\ntry: tests.{check.__name__}(viewer)\nfinally: viewer.end()"
    run_program(code)


# In this one


def test_threads_that_may_share_arenas_are_left_alone(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_memory, "_ARENAS_PER_CORE", 0)
    assert viewer.grow(400) == 0
    assert viewer.grow(400) == 0


def test_another_c_library_gives_no_figure(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise AttributeError("malloc_info")

    monkeypatch.setattr(own_memory, "_Malloc", missing)
    assert viewer.grow(400) == 0


_RUN = """
import sys, threading
import torch
from gradtui.system.own_memory import OWN
from gradtui.probe.samplers.cpu_memory import MallocAllocator

allocator = MallocAllocator()
held, leak = [], []
begin, done = threading.Event(), threading.Event()

def view():
    OWN.update()
    begin.set()
    held.extend(bytearray(4096) for _ in range(256))
    OWN._due = 0.0
    OWN.update()
    done.set()
    threading.Event().wait(60)

threading.Thread(target=view, daemon=True).start()
begin.wait()
before = allocator.read().total
done.wait()
after = allocator.read().total
leak.extend(bytearray(1024) for _ in range(1024))
print(after - before, allocator.read().total - after, OWN.grown)
"""


def test_script_figure_keeps_its_leak_only() -> None:
    """In a process of its own, whose other threads are known."""
    of_viewer, leaked, grown = map(int, run_program(_RUN).stdout.split())
    assert grown > 1_000 * KIB
    assert abs(of_viewer) < 100 * KIB
    assert 1_024 * KIB <= leaked < 1_200 * KIB
