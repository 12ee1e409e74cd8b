"""The receipts of the commands that a script or a notebook gives its watch: what came of each, and what it changed.

A command is applied at the next step boundary, on the training thread. Nothing here makes that thread wait.
"""

from __future__ import annotations

import os
import threading
from _thread import get_ident
from collections.abc import Callable, Generator
from time import monotonic, sleep
from typing import Any, TypeVar

from gradtui.dataclass import dataclass
from gradtui.probe.probe import Probe
from gradtui.probe.session import active_probe
from gradtui.protocol.commands import Command
from gradtui.protocol.effects import Effect
from gradtui.run.state.changes.changes import Change, ChangeStatus
from gradtui.run.state.parts.tries import progress_of
from gradtui.run.state.run_state import RunState
from gradtui.run.text import command_text, counted_changes, effect_text
from gradtui.run.text.effects import NOT_MEASURED
from gradtui.run.text.tries import progress_text

T = TypeVar("T")

_POLL_S = 0.05
_STILL_POLLS = 20
"""Number of polls without a new step after which a receipt that the training thread awaits is given up."""
_PATIENCE = 50
"""Steps of each optimizer after which no measurement of a change is expected."""
_MAX_CHANGES = 2_000


class NotAppliedError(RuntimeError):
    """A command was not applied: gradtui refused it, or the run ended first. The message says why."""


@dataclass(frozen=True)
class ChangeResult:
    """What came of a command that was applied."""

    step: int
    """The optimizer step after which it was applied."""
    text: str
    """What it did, in words."""
    measured: str
    """What it changed in memory and time, in words, or why that was not measured."""
    effect: Effect | None
    """The same as numbers: bytes in `before` and `after`, seconds in `time`. None if it was not measured."""

    def __str__(self) -> str:
        return f"{self.text}: {self.measured}"


class WatchedRun:
    """What a watch may ask about its run, on any thread.

    Args:
        probe: the probe of the run.
        look: applies a function to the state with all events so far. Returns its result, or None without an answer.
    """

    def __init__(self, probe: Probe, look: Callable[[Callable[[RunState], Any]], Any]) -> None:
        self._probe = probe
        self._look = look
        self._owner = os.getpid()
        self.is_closed = False
        """Whether the watch is closed: all events of the run have been applied."""

    def ask(self, at: Callable[[RunState], T]) -> T | None:
        """Apply `at` to the state and return the result; None if the viewer does not answer, or in a forked process."""
        # A forked process has no thread that could answer or release the locks of the parent process.
        if os.getpid() != self._owner:
            return None
        try:
            found: T | None = self._look(at)
        except Exception:  # noqa: BLE001 - the screen may fail at this moment; the script continues
            return None
        return found

    @property
    def is_over(self) -> bool:
        """Whether all events of the run have been applied, because it has ended or its watch is closed."""
        return self.is_closed or bool(self.ask(lambda state: state.ended is not None))

    @property
    def trains_here(self) -> bool:
        """Whether the calling thread is the training thread, or will be."""
        thread = self._probe.hooks.thread
        return thread == get_ident() or (thread is None and threading.current_thread() is threading.main_thread())

    @property
    def is_left(self) -> bool:
        """Whether the thread on which training ran has ended, so that no further step is expected."""
        return self._probe.hooks.has_ended()

    def catch_up(self, *, at_end: bool = False) -> None:
        """Emit what the probe knows, if the calling thread is the training thread.

        Args:
            at_end: measure the last step too, and all changes as far as they can be.
        """
        probe = self._probe
        if active_probe() is not probe or os.getpid() != self._owner or probe.hooks.thread != get_ident():
            return
        if at_end:
            probe.report()
        else:
            probe.buffer.leave()
            probe.hooks.guard("probe", lambda: probe.parts.flush(probe.clock.now()))


class Receipt:
    """The receipt of a command: `await receipt`, or `receipt.result(timeout=…)`.

    A change is measured in the sampled steps after it, usually within a few steps. The figures are complete once a few dozen
    further steps have shown how long a step takes now; a later `result()` has them.
    """

    def __init__(self, run: WatchedRun, command: Command) -> None:
        self._run = run
        self._command = command
        self._newest: Change | None = None

    def done(self) -> bool:
        """Return whether `result()` would return or raise at once with all that is to come. Any thread."""
        try:
            return self._settled() is not None
        except NotAppliedError:
            return True

    def result(self, timeout: float | None = None) -> ChangeResult:
        """Return what came of the command, and wait until that is measured.

        It does not wait on the training thread, or once that thread has ended, because no step could end meanwhile. It then
        returns what has been measured.

        Args:
            timeout: seconds to wait at most; None waits until the change is measured or the run is over.

        Raises:
            NotAppliedError: the command was refused, or the run ended before it was applied.
            TimeoutError: it has not been applied yet.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            found = self._settled()
            if found is not None:
                return found
            left = _POLL_S if deadline is None else min(_POLL_S, deadline - monotonic())
            if left <= 0 or self._run.trains_here or self._run.is_left:
                return self._so_far("not measured yet")
            sleep(left)

    def __await__(self) -> Generator[object, None, ChangeResult]:
        """Return what came of the command, as `result()` does, and let the event loop run until that is measured.

        Once the training thread has ended, it returns what has been measured, or raises `TimeoutError` if that is nothing. If
        training runs on the thread of this loop and no step has ended for a second, training is over or waits for this cell:
        the receipt then has what could be measured so far.
        """
        return self._wait().__await__()

    async def _wait(self) -> ChangeResult:
        import asyncio

        still, step = 0, self._step()
        while True:
            found = self._settled()
            if found is not None:
                return found
            step, before = self._step(), step
            still = still + 1 if step == before else 0
            if self._run.is_left:
                return self._settled() or self._so_far("not measured yet")
            if still >= _STILL_POLLS and self._run.trains_here:
                self._run.catch_up(at_end=True)
                return self._settled() or self._so_far("not measured: no further step was run")
            await asyncio.sleep(_POLL_S)

    def __repr__(self) -> str:
        change = self._change()
        known = "" if change is None else f": {change.status.value}"
        return f"<Receipt: {command_text(self._command)}{known}>"

    def _step(self) -> int:
        return self._run.ask(lambda state: state.step) or 0

    def _change(self) -> Change | None:
        """Return the change as it is known now; None while the command waits."""
        self._run.catch_up()
        found = self._run.ask(lambda state: _of(state, self._command)) or self._newest
        self._newest = found
        return found

    def _settled(self) -> ChangeResult | None:
        """Return the result if no more of its memory is to come, None while it is. Raises `NotAppliedError`."""
        # A run that is over changes no more, so this is asked first.
        is_over, change = self._run.is_over, self._change()
        if change is None:
            if is_over and self._run.ask(lambda _: True):
                raise NotAppliedError(f"cannot {command_text(self._command)}: the run ended before the next step")
            return None
        receipt = change.receipt
        if change.status is ChangeStatus.REFUSED:
            raise NotAppliedError(f"cannot {command_text(self._command)}: {change.text}")
        if receipt is not None and not receipt.held:
            raise NotAppliedError(receipt.text)
        if receipt is None and not change.is_measured:
            return _result(change, NOT_MEASURED)
        if receipt is None and not is_over:
            rounds = self._run.ask(lambda state: (state.step - change.step) / max(1, len(state.optimizers))) or 0
            return None if rounds < _PATIENCE else _result(change, "not measured: no steps could be compared")
        return _result(change, "not measured: the run ended")

    def _so_far(self, otherwise: str) -> ChangeResult:
        if self._newest is None:
            found = self._run.ask(lambda state: progress_of(state.tries, self._command.id, state.step))
            waits = (
                progress_text(found)
                if found is not None
                else "waits for the next step, at whose boundary it is applied"
            )
            raise TimeoutError(f"{command_text(self._command)}: {waits}")
        return _result(self._newest, otherwise)


def _of(state: RunState, command: Command) -> Change | None:
    found = (each for each in reversed(counted_changes(state, _MAX_CHANGES)) if each.command.id == command.id)
    return next((each for each in found if each.status is not ChangeStatus.PENDING), None)


def _result(change: Change, otherwise: str) -> ChangeResult:
    effect = change.receipt.effect if change.receipt is not None else None
    return ChangeResult(change.step, change.text, otherwise if effect is None else effect_text(effect), effect)
