"""Steps that nobody looks at closely: noted as bare marks while they run, and told to the probe later, many in one go.

On steps below a millisecond the hooks' Python code costs far more than its instructions: torch's own code has pushed it out
of the processor's caches by the time of the next hook, and a function that takes 0.1 µs in a loop takes ten times that. A mark
is two numbers added to a list by the wrappers themselves (`torch_hooks`, `module_calls`), without a call of ours; what it means
is worked out for all marks together some tenths of a second later, when that code is warm. Every mark carries its own time,
so nothing is lost.

Marks are taken between two steps that are examined, and only while a step goes its plain way: the model and the optimizer that
the last step had, and nothing that runs within something else. Whatever else happens, the marks are told first, and the
probe hears of it at once. Runs on the training thread.
"""

from __future__ import annotations

import weakref
from _thread import get_ident
from collections.abc import Callable, Sized
from time import perf_counter_ns
from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from gradtui.probe.torch_private.private_names import no_torch_function
from gradtui.protocol.vocabulary import Phase

FORWARD, BACKWARD, STEP, ZERO_GRAD, DATA = 1, 2, 3, 4, 5
"""What began; the negative number says that it ended."""

_PHASE_AFTER = {
    FORWARD: Phase.FORWARD,
    BACKWARD: Phase.BACKWARD,
    -BACKWARD: Phase.OTHER,
    STEP: Phase.OPTIMIZER,
    -STEP: Phase.DATA,
    ZERO_GRAD: Phase.ZERO_GRAD,
    DATA: Phase.DATA,
}

_TELL_NS = 200_000_000
"""Marks wait this long at most, as long as the counts of short steps do."""


class Frozen(Protocol):
    """What commands have frozen, and what is asked about it at every step."""

    @property
    def watches(self) -> Sized:
        """Nothing is asked while this is empty; one list for good."""

    def is_part_disturbed(self) -> bool:
        """Whether something is no longer as a command has made it, so that a step may not begin unseen."""

    def has_gradient(self) -> bool:
        """Whether something has to be done before an optimizer's step."""


class HookEventBuffer:
    """Marks are taken from `begin` until something unusual happens; `tell` is called with [what, when, what, when …].

    A wrapper whose thread is `idle` takes a mark by `add((what, when))`, if nothing else speaks against it; where what it marks
    has an end, it sets `idle` to 0 and `within` to what it is, and both back when it is over. After `tell_at` the end of
    a backward or a step has them told. The wrappers do so themselves: each call of a function more takes a microsecond there.
    """

    __slots__ = (
        "__weakref__", "_frozen", "_taken", "_tell", "add", "asking_ns", "between", "frozen", "idle",
        "is_bare", "model", "optimizer", "steps_left", "tell_at", "thread", "waiting", "within",
    )  # fmt: skip
    # A dictionary of attributes would be one more thing that is no longer in a cache.

    def __init__(self, waiting: Sized, frozen: Frozen, tell: Callable[[list[int]], None]) -> None:
        self.waiting = waiting
        """Commands that wait for a boundary."""
        self._frozen = frozen
        self._tell = tell
        self.frozen = frozen.watches
        """Empty while nothing is frozen by a command: then nothing need be asked."""
        self.thread = 0
        """The thread whose steps are marked; 0 while none are."""
        self.idle = 0
        """The same, while nothing is running that was marked as begun and has an end; else 0."""
        self.model: Callable[[], nn.Module | None] = lambda: None
        self.optimizer: Callable[[], Optimizer | None] = lambda: None
        self.is_bare = False
        """Calls of modules within the model matter to nobody, nor need anything be held while it runs."""
        self.steps_left = 0
        self.between = False
        """A step has ended, and nothing of the next one has run yet."""
        self.within = 0
        """What is running now, 0 if nothing is."""
        self._taken: list[int] = []
        """One list for good."""
        self.add = self._taken.extend
        """Adds what and when, both at once: a Ctrl+C may come between any two calls."""
        self.tell_at = 0
        """When, by the clock's nanoseconds, there have been marks for long enough."""
        self.asking_ns = 0
        """What asking at every step has cost since it was charged last: it grows with what is frozen."""

    def begin(self, now: int, model: nn.Module, optimizer: Optimizer, steps: int, *, is_bare: bool) -> None:
        """Mark the rest of this step, whose forward by `model` has begun, and as many `steps` after it."""
        self.model, self.optimizer = weakref.ref(model), weakref.ref(optimizer)
        self.steps_left, self.between, self.within, self.is_bare = steps, False, 0, is_bare
        self.tell_at = now + _TELL_NS
        self.thread = self.idle = get_ident()

    @property
    def marks_go_on(self) -> bool:
        """What a DataLoader gives now is for a step that is marked only: nobody looks at it."""
        return self.thread != 0 and (self.steps_left > 0 or not self.between)

    def leave(self) -> None:
        """Take no more marks, and tell those there are: something else is about to be told."""
        if self.thread:
            self.thread = self.idle = self.within = 0
            if self._taken:
                self._flush()

    def forget(self) -> None:
        """Take no more marks, and tell nothing: this is a forked child."""
        self.thread = self.idle = self.within = 0

    def phase(self) -> Phase | None:
        """The phase by the last mark, None if that does not tell; may be asked on any thread."""
        happened = self._taken[::2]
        if happened and happened[-1] == -ZERO_GRAD:
            # What was going on before goes on.
            del happened[-2:]
        return _PHASE_AFTER.get(happened[-1]) if happened else None

    def is_disturbed(self) -> bool:
        """Whether the step that is about to begin has to be seen, for what is frozen."""
        return self._ask(self._frozen.is_part_disturbed)

    def is_in_the_way(self) -> bool:
        """Whether something frozen has to be seen to before an optimizer's step."""
        return self._ask(self._frozen.has_gradient)

    def tell(self, now: int) -> None:
        """Tell the marks there are, and go on."""
        self.tell_at = now + _TELL_NS
        self._flush()

    def _ask(self, question: Callable[[], bool]) -> bool:
        began = perf_counter_ns()
        with no_torch_function():
            answer = question()
        self.asking_ns += perf_counter_ns() - began
        return answer

    def _flush(self) -> None:
        marks = self._taken[:]
        del self._taken[: len(marks)]
        if marks:
            self._tell(marks)
