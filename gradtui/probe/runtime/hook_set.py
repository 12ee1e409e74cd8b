"""Our wrappers and hooks on torch: put on together, taken off together, and never allowed to hurt the script.

Everything of ours that torch calls goes through `HookSet.run`, on whatever thread the script uses. It times the call, catches
what it raises, reports that, and switches the failing part off after repeated failures. Exceptions that are meant for
the script (the end of a run after N steps, Ctrl+C) are not `Exception`s and pass. Within it no tensor calls a
`__torch_function__` of the script's, which may print or draw random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import statistics
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from threading import RLock
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar, cast

from gradtui import call_depth
from gradtui.call_depth import LEAVE_OUT
from gradtui.own_frames import strip_own_frames
from gradtui.probe.runtime.forked_children import call_in_forked_children
from gradtui.probe.runtime.script_handlers import raised_by_handler
from gradtui.probe.torch_private.dynamo_frames import leave_to_python
from gradtui.probe.torch_private.private_names import current_graph_task_id, no_torch_function
from gradtui.probe.torch_private.thread_life import ThreadLife

_COLD = 12
"""A hook takes a short step this many times longer than an empty one takes in a tight loop, besides what it times itself: the
script's operations have pushed our code out of the caches, and ours theirs. Seen at steps of 0.2 and 0.5 ms with and without
(benchmarks/step_cost.py); 10 to 15 on one machine, so an estimate."""

_NEWEST = 25
"""The median of so many estimates of what an empty hook takes counts."""

_IN_BACKWARD = ("optimizer", "zero_grad")
"""Parts that the script may cause within backward, by hooks on gradients."""

_ROOM = 200 * LEAVE_OUT
"""So many calls of ours are left out of what the recursion limit bounds while a callback runs: several times the deepest."""

MAX_FAILURES = 3
"""A part that failed this often is switched off for the rest of the run."""


class Removable(Protocol):
    """A handle as torch returns it for a registered hook."""

    def remove(self) -> None:
        """Take the hook off."""


def _nothing(now: int) -> None:
    """An empty callback."""


class Alone(Protocol):
    """Has the hooks of the probe."""

    hooks: HookSet


_Part = TypeVar("_Part", bound=Callable[..., Any])


def alone(look: _Part) -> _Part:
    """Have no other thread begin its first backward within this method of an `Alone`, and Python's cyclic collector not run.

    What a look makes of thousands of tensors would have the collector go through all objects of the process.
    """

    @functools.wraps(look)
    def looking(self: Alone, *arguments: Any, **named: Any) -> Any:
        with self.hooks.looking:
            collects = gc.isenabled()
            gc.disable()
            try:
                return look(self, *arguments, **named)
            finally:
                if collects:
                    gc.enable()

    return cast("_Part", looking)


class HookSet:
    """The patches and handles of one probe, and the time spent in them."""

    def __init__(self, report: Callable[[str, str, bool], None]) -> None:
        self.active = True
        """False once removed: wrappers that somebody else has wrapped in turn then pass straight through."""
        self.calls = call_depth.of_main_thread()
        """What the recursion limit of the main thread goes by."""
        self.own_ns = 0
        """Time spent in our own callbacks so far, nanoseconds, with what a hook is known to cost besides."""
        self.hidden_ns = 0
        """What each hook costs that it cannot time itself: an estimate, 0 until `calibrate`."""
        self._empty_ns: deque[int] = deque(maxlen=_NEWEST)
        """What an empty hook took lately."""
        self.thread: int | None = None
        """The only thread that is listened to; None for any."""
        self.in_backward = False
        """The thread that is listened to runs a backward."""
        self.running: int | None = None
        """The thread that is running a callback of ours, None while none is: what it allocates is ours, not the script's."""
        self._turn = RLock()
        """Held while a callback runs: the engine's threads may come at once, and together with the one that is listened to."""
        self.first: Callable[[], None] | None = None
        """Called before anything that is run: there may be something older to tell."""
        self.raised: Callable[[BaseException, bool], None] | None = None
        """Told of the script's exceptions that pass through a wrapper or end the script, and whether they end it."""
        self.looking = RLock()
        """Held while tensors of the script's are looked at; another thread's first backward waits for its end."""
        self._life: ThreadLife | None = None
        """Of the thread that is listened to."""
        self._others: dict[int, ThreadLife] = {}
        """Threads beside the one that is listened to that have run a backward."""
        self._report = report
        self._failures: dict[str, int] = {}
        self._off: set[str] = set()
        self._noted: set[str] = set()
        self._patches: list[tuple[Any, str, Any, Any, bool]] = []
        self._handles: list[Removable] = []

    def listen_here(self) -> None:
        """Listen to the calling thread only, unless another one that is still alive is listened to.

        The training thread is the one that runs backward; another may follow it only when it has ended.
        """
        thread = get_ident()
        if self.thread != thread and (self.thread is None or self._life is None or not self._life.goes_on()):
            self.thread, self._life = thread, ThreadLife()
            self._others.pop(thread, None)
        elif self.thread != thread and thread not in self._others:
            self._others[thread] = ThreadLife()
            # What is being looked at may be what this backward is about to write.
            with self.looking:
                pass

    def is_alone(self) -> bool:
        """Whether no other thread that is alive has run a backward.

        Autograd writes `.grad` without holding Python's lock: to read one that another thread's backward is writing ends the
        process (seen in torch 2.13).
        """
        if not self._others:
            return True
        for thread, life in tuple(self._others.items()):
            if not life.goes_on():
                self._others.pop(thread, None)
        if self._others:
            self.note("examination", "several threads train at once, and what another one writes cannot be read safely")
        return not self._others

    def note(self, part: str, trouble: str) -> None:
        """Report once that a part cannot do its work for now."""
        if part not in self._noted:
            self._noted.add(part)
            self._report(part, trouble, False)

    def run(self, part: str, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call `callback(now, *arguments)` for the part of this name and return its answer; whatever it raises stays here.

        `now` is the clock's nanoseconds. None is the answer of a part that failed or is off, and on any other thread than
        the one that is listened to, and those of the autograd engine's that step its optimizers.
        """
        here = get_ident()
        if (self.thread not in (None, here) and not self._serves(part)) or part in self._off:
            return None
        # A script that recurses close to the limit needs fewer calls for the rest of its step than we need.
        count = self.calls.cell if here == self.calls.thread else self.calls.spare
        count[0] += _ROOM
        try:
            with self._turn:
                if self.first is not None:
                    self.first()
                answer, outer, self.running = None, self.running, here
                now = perf_counter_ns()
                try:
                    with no_torch_function():
                        answer = callback(now, *arguments)
                except Exception as error:  # noqa: BLE001 - no error of ours may reach the script
                    self._caught(part, error)
                finally:
                    # Also where a run is ended while it is held, which takes the time of that off.
                    self.own_ns += perf_counter_ns() - now + self.hidden_ns
                    self.running = outer
            return answer
        finally:
            count[0] -= _ROOM

    def run_bare(self, part: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """As `run`, without a lock and without a look at the thread, in a quarter of the time: once for each module's call.

        The callback touches no tensor, and checks by itself what thread it is on.
        """
        if part in self._off:
            return
        count = self.calls.cell if get_ident() == self.calls.thread else self.calls.spare
        count[0] += _ROOM
        began = perf_counter_ns()
        try:
            callback(began, *arguments)
        except Exception as error:  # noqa: BLE001 - no error of ours may reach the script
            self._caught(part, error)
        finally:
            self.own_ns += perf_counter_ns() - began
            count[0] -= _ROOM

    def _serves(self, part: str) -> bool:
        """Whether the calling thread is one of the autograd engine's that steps an optimizer for the thread listened to.

        On a device the engine runs backward, and the script's hooks on gradients, in a thread for each device, while the thread
        that called backward waits.
        """
        return part in _IN_BACKWARD and self.in_backward and not self._others and current_graph_task_id() != -1

    def calibrate(self) -> None:
        """Estimate `hidden_ns` on this machine as it is now: some 30 µs of empty hooks, to be repeated now and then.

        How fast a machine is changes while it trains, by its clock and by what else it does: the median of the newest counts.
        """
        own_ns, first, self.first = self.own_ns, self.first, None
        try:
            self._empty_ns.append(self._empty_hook_ns())
        finally:
            self.own_ns, self.first = own_ns, first
        self.hidden_ns = int(_COLD * statistics.median(self._empty_ns))

    def _empty_hook_ns(self) -> int:
        """The least of a few means: what else runs meanwhile does not count."""
        return min(self._mean_of_empty_hooks(20) for _ in range(5))

    def _mean_of_empty_hooks(self, times: int) -> int:
        began = perf_counter_ns()
        for _ in range(times):
            self.run("calibration", _nothing)
        return (perf_counter_ns() - began) // times

    def charge(self, nanoseconds: int) -> None:
        """Count what something of ours has cost outside of hooks."""
        self.own_ns += nanoseconds

    def guard(self, part: str, callback: Callable[..., object], *arguments: Any) -> None:
        """As `run`, for a part within one that is being timed: what fails here leaves the outer part whole."""
        if part in self._off:
            return
        outer, self.running = self.running, get_ident()
        try:
            with no_torch_function():
                callback(*arguments)
        except Exception as error:  # noqa: BLE001 - no error of ours may reach the script
            self._caught(part, error)
        finally:
            self.running = outer

    def passes(self, error: BaseException) -> None:
        """An exception of the script's passes through a wrapper of ours: who wants to know is told, and our frames go."""
        self._tell_of(error, ends=False)
        self.strip(error)

    @staticmethod
    def strip(error: BaseException) -> None:
        """As `passes`, where that has been told already: only our frames go."""
        with contextlib.suppress(Exception):  # classes of errors may have attributes of their own making
            strip_own_frames(error)

    def ends(self, error: BaseException) -> None:
        """An exception of the script's ends it."""
        self._tell_of(error, ends=True)
        strip_own_frames(error)

    def _tell_of(self, error: BaseException, *, ends: bool) -> None:
        if self.raised is not None and self.active:
            self.guard("exceptions", self.raised, error, ends)

    def _caught(self, part: str, error: Exception) -> None:
        """Keep an error of ours from the script; raises one that a signal handler of the script's has raised meanwhile."""
        # Nothing gets out, not even what is raised while reporting, as happens close to Python's recursion limit.
        is_ours = True
        with contextlib.suppress(Exception):
            is_ours = not raised_by_handler(error)
            if is_ours:
                self._failed(part, error)
        if not is_ours:
            raise error

    def _failed(self, part: str, error: Exception) -> None:
        count = self._failures[part] = self._failures.get(part, 0) + 1
        if count >= MAX_FAILURES:
            self._off.add(part)
        self._report(part, f"{type(error).__name__}: {error}", count >= MAX_FAILURES)

    def patch(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `wrap(original)` until `remove`."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        replacement = wrap(original)
        setattr(owner, name, replacement)
        self._patches.append((owner, name, original, replacement, inherited))

    def keep(self, handle: Removable) -> None:
        """Take over a hook handle, to be removed with the rest."""
        self._handles.append(handle)

    def leave_forked_children(self, forget: Callable[[], None]) -> None:
        """Have the wrappers pass straight through in forked children (DataLoader workers): nobody views those.

        `forget` is a bound method that is called there too.
        """
        call_in_forked_children(self._deactivate)
        call_in_forked_children(forget)

    def _deactivate(self) -> None:
        self.active = False

    def remove(self) -> None:
        """Take everything off. A name that somebody wrapped after us keeps their wrapper, and ours passes through."""
        self.active = False
        while self._handles:
            self._handles.pop().remove()
        while self._patches:
            owner, name, original, replacement, inherited = self._patches.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


# Whatever a hook does, it is no part of a program that the script compiles.
leave_to_python(HookSet.run, and_all_it_calls=True)
leave_to_python(HookSet.passes, and_all_it_calls=True)
