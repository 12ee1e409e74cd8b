"""Buffer the hook events of steps that are not sampled, and replay many of them together later.

On steps below a millisecond the hooks' Python code costs far more than its instructions: torch's own code has evicted it
from the processor's caches by the time of the next hook, and a function that takes 0.1 µs in a loop takes ten times that. A
buffered hook event is two numbers that the wrappers themselves (`torch_hooks`, `module_calls`) append to a list, without a
call of a function of gradtui. All events are interpreted together some tenths of a second later, when that code is in the
caches. Every event carries its own time, so nothing is lost.

Events are buffered between two sampled steps, and only while the loop is simple: the same model and optimizer as in the
last step, and no nested calls. Before any other event the buffer is replayed, and the probe handles that event at once.
Runs on the training thread.
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

FORWARD, BACKWARD, STEP, ZERO_GRAD, DATA, LOADER = 1, 2, 3, 4, 5, 6
"""The kinds of event: a positive number for the start, its negative for the end. `LOADER` is `DataLoader.__iter__`."""

_PHASE_AFTER = {
    FORWARD: Phase.FORWARD,
    BACKWARD: Phase.BACKWARD,
    -BACKWARD: Phase.OTHER,
    STEP: Phase.OPTIMIZER,
    -STEP: Phase.DATA,
    ZERO_GRAD: Phase.ZERO_GRAD,
    DATA: Phase.DATA,
    -DATA: Phase.DATA,
    LOADER: Phase.DATA,
    -LOADER: Phase.DATA,
}

_FLUSH_NS = 200_000_000
"""Events of whole steps are buffered this long at most, as long as the counts of short steps are."""
_FLUSH_WITHIN_NS = 1_000_000_000
"""The same of the events of a step that has not ended."""
_NEWEST = 512
"""Events among which those of the present step are looked for."""


class FrozenParameters(Protocol):
    """What the buffer asks of the parameters that commands have frozen, at each step."""

    @property
    def freezes(self) -> Sized:
        """The freezes; empty while there are none."""

    def is_part_disturbed(self) -> bool:
        """Return whether the script has changed a frozen part."""

    def has_gradient(self) -> bool:
        """Return whether a frozen parameter has a gradient."""


class HookEventBuffer:
    """Buffers hook events from `begin` until an unusual event; `replay` is called with [what, when, what, when …].

    A wrapper on the thread `idle` appends an event by `add((what, when))`, unless another condition excludes it. If the
    event has an end, the wrapper sets `idle` to 0 and `within` to the event, and resets both at the end. After `flush_at`
    the wrapper has the buffer replayed at the end of a step, and after `flush_within_at` at the end of a backward. The wrappers
    do all this inline: each further function call takes a microsecond there.
    """

    __slots__ = (
        "__weakref__",
        "_counted",
        "_ended",
        "_frozen",
        "_replay",
        "_taken",
        "add",
        "asking_ns",
        "between",
        "flush_at",
        "flush_within_at",
        "frozen",
        "idle",
        "is_bare",
        "model",
        "optimizer",
        "steps_left",
        "thread",
        "waiting",
        "within",
    )  # fmt: skip
    # An instance dictionary would be one more object that is no longer in a cache.

    def __init__(self, waiting: Sized, replay: Callable[[list[int]], None]) -> None:
        self.waiting = waiting
        """Commands that wait for a boundary."""
        self._replay = replay
        self._frozen: FrozenParameters | None = None
        self.frozen: Sized = ()
        """Empty while no command has frozen anything: then nothing needs to be checked."""
        self.thread = 0
        """The thread whose steps are buffered; 0 while none are."""
        self.idle = 0
        """The same as `thread`, but 0 while a buffered event that has an end is running."""
        self.model: Callable[[], nn.Module | None] = lambda: None
        self.optimizer: Callable[[], Optimizer | None] = lambda: None
        self.is_bare = False
        """Whether calls of modules within the model need not be logged, and no statistics need be pinned while it runs."""
        self.steps_left = 0
        self.between = False
        """Whether a step has ended, and nothing of the next one has run yet."""
        self.within = 0
        """The event that is running now, 0 if none is."""
        self._taken: list[int] = []
        """The same list for the whole run."""
        self._counted = self._ended = 0
        """The length of `_taken` up to which the ends of steps were counted, and their number."""
        self.add = self._taken.extend
        """Appends kind and time in one call: a Ctrl+C may come between any two calls."""
        self.flush_at = 0
        """When the buffer is due to be replayed at the end of a step, by the clock's nanoseconds. A new `begin` keeps it: the
        forward of a long step may begin shortly before its end."""
        self.flush_within_at = 0
        """When it is due at the end of a backward, since the step takes long."""
        self.asking_ns = 0
        """Nanoseconds that the checks at every step took since they were last charged. They grow with what is frozen."""

    def begin(
        self, now: int, model: nn.Module, optimizer: Optimizer, frozen: FrozenParameters, *, steps: int, is_bare: bool
    ) -> None:
        """Buffer the rest of this step, whose forward by `model` has begun, and the `steps` steps after it."""
        self._frozen, self.frozen = frozen, frozen.freezes
        self.model, self.optimizer = weakref.ref(model), weakref.ref(optimizer)
        self.steps_left, self.between, self.within, self.is_bare = steps, False, 0, is_bare
        self.flush_within_at = now + _FLUSH_WITHIN_NS
        self.thread = self.idle = get_ident()

    def __len__(self) -> int:
        """The number of buffered events."""
        return len(self._taken) // 2

    @property
    def steps(self) -> int:
        """The number of buffered steps that have ended."""
        new = self._taken[self._counted :: 2]
        self._counted += 2 * len(new)
        self._ended += new.count(-STEP)
        return self._ended

    @property
    def newest(self) -> list[int]:
        """The kinds of the newest buffered events."""
        return self._taken[-2 * _NEWEST :: 2]

    @property
    def marks_go_on(self) -> bool:
        """Whether a batch that a DataLoader yields now is for a step that is only buffered, and need not be recorded."""
        return self.thread != 0 and (self.steps_left > 0 or not self.between)

    def leave(self) -> None:
        """Stop buffering and replay the buffer, before another event is handled."""
        if self.thread:
            self.thread = self.idle = self.within = 0
            if self._taken:
                self._drain()

    def forget(self) -> None:
        """Stop buffering and replay nothing: this is a forked child."""
        self.thread = self.idle = self.within = 0

    def phase(self) -> Phase | None:
        """Return the phase after the last buffered event, None if the buffer does not determine it. Any thread may call it."""
        happened = self._taken[::2]
        if happened and happened[-1] == -ZERO_GRAD:
            # After `zero_grad` the phase before it continues.
            del happened[-2:]
        return _PHASE_AFTER.get(happened[-1]) if happened else None

    def is_disturbed(self) -> bool:
        """Return whether the next step must not be buffered because of a freeze."""
        return self._frozen is not None and self._ask(self._frozen.is_part_disturbed)

    def is_in_the_way(self) -> bool:
        """Return whether a frozen parameter needs work before an optimizer's step."""
        return self._frozen is not None and self._ask(self._frozen.has_gradient)

    def flush(self, now: int) -> None:
        """Replay the buffer, and continue buffering."""
        if self.between:
            self.flush_at = now + _FLUSH_NS
        self.flush_within_at = now + _FLUSH_WITHIN_NS
        self._drain()

    def take_asking_ns(self) -> int:
        """Return and reset `asking_ns`."""
        taken, self.asking_ns = self.asking_ns, 0
        return taken

    def _ask(self, question: Callable[[], bool]) -> bool:
        began = perf_counter_ns()
        with no_torch_function():
            answer = question()
        self.asking_ns += perf_counter_ns() - began
        return answer

    def _drain(self) -> None:
        marks = self._taken[:]
        self._counted = self._ended = 0
        del self._taken[: len(marks)]
        if marks:
            self._replay(marks)
