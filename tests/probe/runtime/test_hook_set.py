"""Hooks go on and come off without a trace, and what fails in them stays in them."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from gradtui.probe.runtime import forked_children
from gradtui.probe.runtime import hook_set as hook_set_module
from gradtui.probe.runtime.failures import MAX_FAILURES
from gradtui.probe.runtime.hook_set import HookSet
from gradtui.probe.torch_private.thread_life import ThreadLife


class Base:
    def greet(self) -> str:
        return "hello"


class Derived(Base):
    pass


def hook_set(first: Callable[[], None] | None = None) -> tuple[HookSet, list[tuple[str, str, bool]]]:
    reports: list[tuple[str, str, bool]] = []
    return HookSet(lambda *report: reports.append(report), first=first), reports


def raising(*arguments: object) -> None:
    error = arguments[-1]
    assert isinstance(error, BaseException)
    raise error


def test_patch_is_taken_off_to_very_same_object() -> None:
    hooks, _ = hook_set()
    original = vars(Base)["greet"]
    hooks.patch(Base, "greet", lambda real: lambda self: real(self) + "!")
    assert Base().greet() == "hello!"
    hooks.remove()
    assert vars(Base)["greet"] is original


def test_patch_of_inherited_name_leaves_nothing_behind() -> None:
    hooks, _ = hook_set()
    hooks.patch(Derived, "greet", lambda real: lambda self: real(self) + "!")
    assert (Derived().greet(), Base().greet()) == ("hello!", "hello")
    hooks.remove()
    assert "greet" not in vars(Derived)


def test_what_somebody_patched_after_us_stays() -> None:
    hooks, _ = hook_set()
    original = vars(Base)["greet"]
    hooks.patch(Base, "greet", lambda real: lambda self: real(self) + "!")
    ours = Base.greet
    theirs = lambda self: ours(self) + "?"  # noqa: E731
    Base.greet = theirs
    try:
        hooks.remove()
        assert vars(Base)["greet"] is theirs
        assert not hooks.active
    finally:
        Base.greet = original


@pytest.mark.parametrize("how", ["run", "run_bare", "guard"])
def test_failing_part_is_reported_then_left_alone(how: str) -> None:
    hooks, reports = hook_set()
    calls = []

    def fails(*_: object) -> None:
        calls.append(1)
        raise ValueError("no")

    for _ in range(10):
        getattr(hooks, how)("part", fails)
    assert len(calls) == MAX_FAILURES
    assert reports == [("part", "ValueError: no", is_off) for is_off in (False, False, True)]
    getattr(hooks, how)("another part", lambda *_: calls.append(1))
    assert len(calls) == MAX_FAILURES + 1


def test_guarded_block_reports_three_failures() -> None:
    hooks, reports = hook_set()
    for _ in range(10):
        with hooks.guarded("part"):
            raise ValueError("no")
    assert reports == [("part", "ValueError: no", is_off) for is_off in (False, False, True)]
    assert hooks.is_off("part")
    assert not hooks.is_off("another part")


def test_nested_guarded_block_ends_alone() -> None:
    hooks, reports = hook_set()
    after = []
    with hooks.guarded("part"):
        with hooks.guarded("part"):
            raise ValueError("inner")
        after.append(1)
        raise ValueError("outer")
    assert after == [1]
    assert [error for _, error, _ in reports] == ["ValueError: inner", "ValueError: outer"]


def guarded(hooks: HookSet, part: str, callback: Callable[..., object], *arguments: object) -> None:
    with hooks.guarded(part):
        callback(*arguments)


CALLS = [HookSet.run, HookSet.run_bare, HookSet.guard, guarded]


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
def test_what_is_meant_for_the_script_passes(how: Callable[..., object], error: BaseException) -> None:
    hooks, reports = hook_set()
    for _ in range(5):
        with pytest.raises(type(error)):
            how(hooks, "part", raising, error)
    assert reports == []


@pytest.mark.parametrize("how", ["run", "run_bare"])
@pytest.mark.parametrize("reading", [1, 2])
def test_ctrl_c_while_reading_clock_leaves_nothing(monkeypatch: pytest.MonkeyPatch, how: str, reading: int) -> None:
    """The clock is read before the callback and after it. A script that catches the Ctrl+C continues."""
    hooks, _ = hook_set()
    left = [reading]

    def interrupted() -> int:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(hook_set_module, "perf_counter_ns", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(hooks, how)("part", lambda now: None)
    assert hooks.running is None


@pytest.mark.parametrize("how", ["run", "run_bare"])
def test_a_callback_may_call_hooks_itself_and_fail(how: str) -> None:
    hooks, reports = hook_set()
    getattr(hooks, how)("outer", lambda now: getattr(hooks, how)("inner", raising, ValueError("no")))
    getattr(hooks, how)("outer", raising, ValueError("no"))
    assert [part for part, _, _ in reports] == ["inner", "outer"]
    assert hooks.running is None


def test_only_run_is_timed() -> None:
    hooks, _ = hook_set()
    hooks.guard("part", sum, range(1000))
    assert hooks.own_ns == 0
    assert hooks.run("part", lambda now: now) > 0
    assert hooks.own_ns > 0


def test_run_answers_callback_or_none() -> None:
    hooks, _ = hook_set()
    assert hooks.run("part", lambda now, value: value, 7) == 7
    assert hooks.run("part", raising, ValueError()) is None


def test_other_threads_are_unheard_until_one_ends() -> None:
    hooks, _ = hook_set()

    def from_another(act: Callable[[], object]) -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    heard: list[str] = []
    hear = lambda word: hooks.run("part", lambda now: heard.append(word))  # noqa: E731
    from_another(lambda: hear("anybody"))
    hooks.listen_here()
    from_another(lambda: (hooks.listen_here(), hear("another")))
    hear("itself")
    assert heard == ["anybody", "itself"]
    hooks.thread = None
    from_another(hooks.listen_here)
    hear("not yet")
    hooks.listen_here()
    hear("follower")
    assert heard == ["anybody", "itself", "follower"]


class Part:
    forgot = 0

    def forget(self) -> None:
        self.forgot += 1


def test_fork_has_nothing_after_hooks_are_gone() -> None:
    hooks, _ = hook_set()
    part = Part()
    hooks.leave_forked_children(part.forget)
    gone = weakref.ref(hooks), weakref.ref(part)
    del hooks, part
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_one_function_serves_all_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python never forgets one: fifty watches, one after the other, must not leave fifty."""
    given: list[Callable[[], object]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda *, after_in_child: given.append(after_in_child))
    monkeypatch.setattr(forked_children, "_calls", [])
    monkeypatch.setattr(forked_children, "_register", functools.cache(forked_children._register.__wrapped__))
    for _ in range(50):
        hooks, _ = hook_set()
        part = Part()
        hooks.leave_forked_children(part.forget)
    (in_child,) = given
    in_child()
    assert (hooks.active, part.forgot) == (False, 1)
    # At most those of two watches: the newest one, and the one before it, which was alive when the newest was made.
    assert len(forked_children._calls) <= 4


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hooks_are_off_in_forked_child() -> None:
    class Failing:
        def forget(self) -> None:
            raise ValueError("in the child")

    hooks, _ = hook_set()
    failing, part = Failing(), Part()
    hooks.leave_forked_children(failing.forget)
    hooks.leave_forked_children(part.forget)
    child = os.fork()
    if child == 0:
        gc.disable()  # the garbage of other tests may need threads that this process does not have
        os._exit(0 if (hooks.active, part.forgot) == (False, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (hooks.active, part.forgot) == (True, 0)


def test_nothing_is_left_where_no_fork_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, _ = hook_set()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "register_at_fork")
    hooks.leave_forked_children(Part().forget)
    assert hooks.active


def test_backward_of_thread_is_known_while_alive() -> None:
    told: list[str] = []
    hooks = HookSet(lambda part, error, disabled: told.append(error))
    hooks.listen_here()
    assert hooks.is_alone()
    may_end, has_begun = threading.Event(), threading.Event()

    def other() -> None:
        hooks.listen_here()
        has_begun.set()
        may_end.wait(60)

    thread = threading.Thread(target=other)
    with hooks.looking:
        thread.start()
        assert not has_begun.wait(0.05), "its backward waits while something is being looked at"
    assert has_begun.wait(60)
    assert [hooks.is_alone(), hooks.is_alone()] == [False, False]
    may_end.set()
    thread.join()
    assert hooks.is_alone()
    assert len(told) == 1


def test_what_hooks_hide_is_estimated_again_without_trace() -> None:
    """The newest estimates count, and what is older than a report is not told of for it."""
    told: list[int] = []
    hooks, _ = hook_set(lambda: told.append(1))
    hooks.own_ns = 17
    for _ in range(3):
        hooks.calibrate()
    assert hooks.hidden_ns > 0
    assert (hooks.own_ns, told) == (17, [])
    hooks.run("part", lambda now: None)
    assert told == [1]


def test_a_slower_machine_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, _ = hook_set()
    took = [100] * 3
    monkeypatch.setattr(hooks, "_empty_hook_ns", lambda: took[0])
    hooks.calibrate()
    fast = hooks.hidden_ns
    took[0] = 300
    hooks.calibrate()
    hooks.calibrate()
    assert hooks.hidden_ns == 3 * fast


def test_ctrl_c_during_estimate_leaves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    hooks, _ = hook_set(lambda: told.append(1))
    monkeypatch.setattr(hooks, "_empty_hook_ns", lambda: raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        hooks.calibrate()
    hooks.run("part", lambda now: None)
    assert told == [1]


def test_thread_is_known_until_it_ends() -> None:
    lives: list[ThreadLife] = []
    begun, may_end = threading.Event(), threading.Event()

    def other() -> None:
        lives.extend([ThreadLife(), ThreadLife()])
        begun.set()
        may_end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60)
    assert [life.goes_on() for life in (*lives, ThreadLife())] == [True] * 3
    may_end.set()
    thread.join()
    assert [life.goes_on() for life in lives] == [False] * 2
