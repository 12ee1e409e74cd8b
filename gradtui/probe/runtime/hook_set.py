"""Install gradtui's wrappers and hooks on torch, remove them, and isolate the script from their failures.

Every callback of gradtui that torch calls goes through `HookSet.run`, on whatever thread the script uses. It times the
callback, catches and reports what it raises, and switches the failing part off after repeated failures. Exceptions that are
meant for the script (the end of a run after N steps, Ctrl+C) are not `Exception`s and pass through. While a callback runs,
no tensor calls a `__torch_function__` of the script, which may print or draw random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from threading import RLock
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar, cast

from torch.utils.hooks import RemovableHandle

from gradtui.probe.runtime.failures import Failures
from gradtui.probe.runtime.forked_children import call_in_forked_children
from gradtui.probe.torch_private.dynamo_frames import leave_all_to_python
from gradtui.probe.torch_private.private_names import current_graph_task_id, no_torch_function
from gradtui.probe.torch_private.thread_life import ThreadLife
from gradtui.protocol.events import SEVERAL_THREADS
from gradtui.system.no_collection import no_collection
from gradtui.system.own_frames import strip_own_frames

_EVICTION = 2
"""A hook costs a step this many times what it takes itself with cold caches, an estimate: the script's operations evict
gradtui's code and data from the caches, and gradtui's evict theirs."""

_CACHE_BYTES = 2 << 20
"""More than the caches of one core hold, except what it shares with other cores."""

_NEWEST = 25
"""The number of estimates of the time of an empty hook whose median is used."""

_IN_BACKWARD = ("optimizer", "zero_grad")
"""Parts that the script may call within backward, by hooks on gradients."""


def _nothing(now: int) -> None:
    """Do nothing: an empty callback."""


_Part = TypeVar("_Part", bound=Callable[..., Any])


def alone(look: _Part) -> _Part:
    """Decorate a method of an object with `hooks`: it blocks other threads' first backward, and disables garbage collection.

    A method that creates objects for thousands of tensors would make the collector traverse all objects of the process.
    """

    @functools.wraps(look)
    def looking(self: Any, *arguments: Any, **named: Any) -> Any:
        with self.hooks.looking, no_collection():
            return look(self, *arguments, **named)

    return cast("_Part", looking)


class Counting(Protocol):
    """What is active between two callbacks, and not in them."""

    def enter(self) -> object:
        """Begin, or go on."""

    def leave(self) -> object:
        """Pause."""

    def stop(self) -> None:
        """End."""


class HookSet:
    """Holds the patches and handles of one probe, and measures the time spent in them."""

    def __init__(
        self,
        report: Callable[[str, str, bool], None],
        *,
        first: Callable[[], None] | None = None,
        raised: Callable[[BaseException, bool], None] = lambda _error, _ends: None,
    ) -> None:
        """Create an empty set.

        Args:
            report: called with each failure of a part: its name, the error, and whether the part is switched off now.
            first: called before every callback, to replay older buffered events first.
            raised: called with each exception of the script that passes through a wrapper or ends the script, and whether it
                ends it.
        """
        self.active = True
        """False after `remove`: wrappers that other code has wrapped in turn then only call the original."""
        self.own_ns = 0
        """Time spent in gradtui's callbacks so far in nanoseconds, with the known cost of a hook beyond its callback."""
        self.hidden_ns = 0
        """The time in nanoseconds that each hook takes and cannot measure itself: an estimate, 0 until `calibrate`."""
        self._empty_ns: deque[int] = deque(maxlen=_NEWEST)
        """The newest measurements of the time of an empty hook."""
        self.thread: int | None = None
        """The only thread whose hook calls are handled (the training thread); None for any."""
        self.in_backward = False
        """Whether the training thread runs a backward."""
        self.running: int | None = None
        """The thread that is running a callback, None while none is: the memory that it allocates is not the script's."""
        self.counting: Counting | None = None
        """What is left before each callback and entered after it; None in most steps."""
        self._began = 0
        """When the callback that `run` is running began, by the clock's nanoseconds; 0 while it runs none."""
        self._turn = RLock()
        """Held while a callback runs: the autograd engine's threads may call hooks together, also with the training thread."""
        self._first = first
        self._raised = raised
        self.looking = RLock()
        """Held while gradtui reads tensors of the script. The first backward of another thread waits until it is released."""
        self._life: ThreadLife | None = None
        """Whether the training thread is alive."""
        self._others: dict[int, ThreadLife] = {}
        """Threads other than the training thread that have run a backward."""
        self.other_begins: list[Callable[[], None]] = []
        """Called before the first backward of such a thread, on that thread."""
        self._failures = Failures(report)
        self._off = self._failures.off
        self.guarded = self._failures.guarded
        """Returns what isolates the failures of a part: `with hooks.guarded("gradient norms"):`."""
        self._noted: set[str] = set()
        self._patches: list[tuple[Any, str, Any, Any, bool]] = []
        self._handles: list[RemovableHandle] = []

    def listen_here(self) -> None:
        """Make the calling thread the training thread, unless another one that is still alive is.

        The training thread is the one that runs backward. Another thread may replace it only when it has ended.
        """
        thread = get_ident()
        if self.thread != thread and (self.thread is None or self._life is None or not self._life.goes_on()):
            self.thread, self._life = thread, ThreadLife()
            self._others.pop(thread, None)
        elif self.thread != thread and thread not in self._others:
            self._others[thread] = ThreadLife()
            # This backward may write the tensors that gradtui is reading.
            with self.looking:
                for callback in self.other_begins:
                    callback()

    def has_ended(self) -> bool:
        """Return whether the training thread has ended. Any thread."""
        return self._life is not None and not self._life.goes_on()

    def is_alone(self) -> bool:
        """Return whether no other living thread has run a backward.

        Autograd writes `.grad` without holding the GIL. Reading a `.grad` that another thread's backward is writing ends
        the process (observed in torch 2.13).
        """
        if not self._others:
            return True
        for thread, life in tuple(self._others.items()):
            if not life.goes_on():
                self._others.pop(thread, None)
        if self._others:
            self.note("sampled step", SEVERAL_THREADS)
        return not self._others

    def note(self, part: str, trouble: str) -> None:
        """Report once that a part cannot do its work for now."""
        if part not in self._noted:
            self._noted.add(part)
            self._failures.report(part, trouble, False)

    # dynamo must not trace a hook into a program that the script compiles.
    @leave_all_to_python
    def run(self, part: str, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call `callback(now, *arguments)` for the part of this name and return its result. Catches gradtui's own errors.

        `now` is the clock's time in nanoseconds. Returns None for a part that failed or is off, and on any thread other
        than the training thread and the threads of the autograd engine that step its optimizers.
        """
        here = get_ident()
        if (self.thread not in (None, here) and not self._serves(part)) or part in self._off:
            return None
        with self._turn:
            if self._first is not None:
                self._first()
            answer, outer, outer_began, now = None, self.running, self._began, perf_counter_ns()
            self.running, self._began = here, now
            try:
                if self.counting is not None:
                    self.counting.leave()
                with no_torch_function():
                    answer = callback(now, *arguments)
            except Exception as error:
                if not self._failures.catch(part, error):
                    raise
            finally:
                # First, and without a call: a Ctrl+C may come with any call, and the script may catch it.
                self.running, self._began = outer, outer_began
                # Also if the run is stopped while it is held: `pause_ended` then subtracts the time of the hold.
                self.own_ns += perf_counter_ns() - now + self.hidden_ns
                if self.counting is not None and outer is None:
                    self.counting.enter()
        return answer

    def run_bare(self, part: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call `callback` as `run` does, without the lock and the check of the thread, in a quarter of the time.

        It is called once for each module call. The callback touches no tensor, and checks itself which thread it is on.
        """
        if part in self._off:
            return
        began = perf_counter_ns()
        try:
            callback(began, *arguments)
        except Exception as error:
            if not self._failures.catch(part, error):
                raise
        finally:
            self.own_ns += perf_counter_ns() - began

    def _serves(self, part: str) -> bool:
        """Return whether the calling thread is one of the autograd engine's that steps an optimizer for the training thread.

        On a device the engine runs backward, and the script's hooks on gradients, in a thread for each device, while the
        thread that called backward waits.
        """
        return part in _IN_BACKWARD and self.in_backward and not self._others and current_graph_task_id() != -1

    def calibrate(self) -> None:
        """Estimate `hidden_ns` on this machine as it is now. Takes some 0.5 ms; repeat it now and then.

        The speed of a machine changes during training, with its clock rate and its other load. The estimate uses the median
        of the newest measurements.
        """
        own_ns, first, self._first = self.own_ns, self._first, None
        try:
            self._empty_ns.append(self._empty_hook_ns())
        finally:
            self.own_ns, self._first = own_ns, first
        self.hidden_ns = int(_EVICTION * statistics.median(self._empty_ns))

    def _empty_hook_ns(self) -> int:
        """Return the smallest of five times of an empty hook with cold caches: other processes only add time."""
        much = memoryview(bytearray(_CACHE_BYTES))
        return min(self._cold_hook_ns(much) for _ in range(5))

    def _cold_hook_ns(self, much: memoryview) -> int:
        # Touching as much as the caches hold evicts all else from them.
        much[: _CACHE_BYTES // 2] = much[_CACHE_BYTES // 2 :]
        began = perf_counter_ns()
        self.run("calibration", _nothing)
        return perf_counter_ns() - began

    @property
    def spent_ns(self) -> int:
        """`own_ns` with what the present callback has taken so far."""
        return self.own_ns + (perf_counter_ns() - self._began if self._began else 0)

    def own_until(self, now: int) -> int:
        """Return `own_ns` as it was or will be at `now`, in the present callback or after it."""
        return self.own_ns + (max(0, now - self._began) if self._began else 0)

    def charge(self, nanoseconds: int) -> None:
        """Add the cost of gradtui's work outside of hooks to the overhead."""
        self.own_ns += nanoseconds

    def guard(self, part: str, callback: Callable[..., object], *arguments: Any) -> None:
        """Call `callback` for a part, and catch gradtui's own errors, as `run` does. It is not timed.

        For code that a wrapper calls outside of `run`, and where each call counts. Within `run` use `guarded`.
        """
        if part in self._off:
            return
        outer, self.running = self.running, get_ident()
        try:
            if self.counting is not None:
                self.counting.leave()
            with no_torch_function():
                callback(*arguments)
        except Exception as error:
            if not self._failures.catch(part, error):
                raise
        finally:
            self.running = outer
            if self.counting is not None and outer is None:
                self.counting.enter()

    @leave_all_to_python
    def passes(self, error: BaseException, *, ends: bool = False) -> None:
        """Report an exception of the script that passes through a wrapper or ends the script, and `strip` it."""
        if self.active:
            self.guard("exceptions", self._raised, error, ends)
        self.strip(error)

    @staticmethod
    def strip(error: BaseException) -> None:
        """Strip gradtui's frames from the traceback of an exception that `passes` has reported."""
        with contextlib.suppress(Exception):  # classes of errors may have attributes of their own making
            strip_own_frames(error)

    def read(self, part: str, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call `callback` in a step that is only buffered, as `run` does, but do not replay the buffer. Return its result."""
        if part in self._off:
            return None
        began, here = perf_counter_ns(), get_ident()
        outer, self.running = self.running, here
        try:
            if self.counting is not None:
                self.counting.leave()
            with no_torch_function():
                return callback(*arguments)
        except Exception as error:
            if not self._failures.catch(part, error):
                raise
            return None
        finally:
            self.running = outer
            self.own_ns += perf_counter_ns() - began
            if self.counting is not None and outer is None:
                self.counting.enter()

    def is_off(self, part: str) -> bool:
        """Return whether a part has failed so often that it must not be tried again."""
        return part in self._off

    def patch(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `wrap(original)` until `remove`."""
        inherited = name not in vars(owner)
        original = getattr(owner, name)
        replacement = wrap(original)
        setattr(owner, name, replacement)
        self._patches.append((owner, name, original, replacement, inherited))

    def keep(self, handle: RemovableHandle) -> None:
        """Store a hook handle, to be removed with the rest."""
        self._handles.append(handle)

    def leave_forked_children(self, forget: Callable[[], None]) -> None:
        """Make the wrappers only call the original in forked children (DataLoader workers), which gradtui does not observe.

        `forget` is a bound method that is called there too.
        """
        call_in_forked_children(self._deactivate)
        call_in_forked_children(forget)

    def _deactivate(self) -> None:
        self.active = False

    def remove(self) -> None:
        """Remove all hooks and patches.

        If other code has wrapped a patched name since, its wrapper stays, and gradtui's only calls the original.
        """
        self.active = False
        if self.counting is not None:
            self.counting.stop()
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
