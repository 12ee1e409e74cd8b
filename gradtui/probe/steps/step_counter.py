"""Count steps and micro-steps, and create the `Progress` events that carry the counts, at most five a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from gradtui.dataclass import dataclass
from gradtui.probe.runtime import RunStopped
from gradtui.protocol.events import PhaseTime, Progress

FLUSH_NS = 200_000_000
"""Short steps share one event: no viewer needs to show more than five of them a second."""


@dataclass
class OwnDeviceTime:
    """Time of gradtui's own operations in seconds, as far as it has been read."""

    device: float = 0.0
    excess: float = 0.0
    """Device time beyond the host time of the same operations. The two overlap, so the larger one counts."""
    exempt_excess: float = 0.0
    """The part of `excess` in steps that are sampled regardless of the budget."""


class StepCounter:
    """Counts steps over the whole run, and since the last event."""

    def __init__(self, stop_after: int | None = None, is_alive: Callable[[int], bool] = lambda _: True) -> None:
        """Create it with what tells whether the optimizer with an index is still alive."""
        self._is_alive = is_alive
        self.steps = 0
        """Executed steps of all optimizers together; before the first of them, the number of `stepped_by_hand` calls."""
        self.iterations = 0
        """Iterations of the training loop: a new one begins with a step of an optimizer that has stepped in the current one, or
        of another one when all of these are freed: the loop makes an optimizer anew."""
        self._in_iteration: set[int] = set()
        """The optimizers that have stepped in the current iteration."""
        self._stepped: set[int] = set()
        """The optimizers that have stepped so far."""
        self._newest: int | None = None
        """An optimizer whose first step was the newest one of all, and was counted in an iteration of others."""
        self._over: set[int] = set()
        """Optimizers whose loop seems to be over, since another one has begun with two steps in a row."""
        self.micro_steps = 0
        """The number of outermost backward calls."""
        self.left_out = 0
        """The number of steps that a loss scaler has skipped since the last executed one."""
        self._left_out_before = 0
        """The value of `left_out` when the newest step was counted."""
        self.setup_steps = 0
        """The number of steps in the first event that had any: their cost counts as setting up."""
        self._exempt_steps, self._exempt_seconds = 0, 0.0
        self._paid_steps, self._paid_seconds = 0, 0.0
        self._flushed = (0, 0)
        self._stop_after, self._wanted = stop_after, stop_after
        self._replayed_at = 0
        """The value of `micro_steps` after the newest replay of a CUDA graph with a backward."""
        self._without_loss = 0
        """The number of newest steps whose backward a CUDA graph has replayed."""
        self._skipped = 0
        self.ended = 0
        """Steps of optimizers that have ended, executed or skipped. A late answer of a device does not change their numbers."""
        self._by_hand = 0
        self._by_optimizer: list[int] = []
        self._flushed_by: list[int] = []
        """By index of the optimizer: its steps in earlier events."""
        self._flushed_at = 0

    def stepped(self, optimizer: int, times: int = 1) -> None:
        """Count `times` steps of the optimizer with this index."""
        self.ended += times
        self._count_without_loss(times)
        self.steps += times - self._by_hand
        self.iterations -= self._by_hand
        self._count_iterations(optimizer, times)
        self._left_out_before = self.left_out
        self._by_hand = self.left_out = 0
        self._by_optimizer += [0] * (optimizer + 1 - len(self._by_optimizer))
        self._by_optimizer[optimizer] += times

    def _count_iterations(self, optimizer: int, times: int) -> None:
        joins = optimizer not in self._in_iteration and any(map(self._is_alive, self._in_iteration))
        self.iterations += times - joins
        begins_a_loop = self._newest == optimizer
        self._newest = None
        if joins and optimizer not in self._stepped:
            begins_a_loop, self._newest = times > 1, optimizer
        if begins_a_loop:
            # So its first step was an iteration of its own.
            self.iterations += 1
            self._over, self._newest = self._stepped - {optimizer}, None
        elif optimizer in self._over:
            # They take turns after all.
            self.iterations -= 1
            self._over = set()
        self._stepped.add(optimizer)
        if not joins or times > 1:
            self._in_iteration.clear()
        self._in_iteration.add(optimizer)

    def stepped_by_hand(self) -> None:
        """Count a backward in a script without an optimizer: whatever the script does with the gradients next is its step."""
        self._count_without_loss(1)
        self.steps += 1
        self.iterations += 1
        self._by_hand += 1

    def _count_without_loss(self, steps: int) -> None:
        is_replayed = 0 < self.micro_steps == self._replayed_at
        self._without_loss = self._without_loss + steps if is_replayed else 0

    def replayed(self, backwards: int, optimizers: Sequence[int], *, by_hand: bool) -> int:
        """Count the work of a replayed CUDA graph; return the number of steps."""
        before = self.steps
        self.micro_steps += backwards
        if backwards:
            self._replayed_at = self.micro_steps
        for index in optimizers:
            self.stepped(index)
        for _ in range(backwards if by_hand else 0):
            self.stepped_by_hand()
        return self.steps - before

    @property
    def by_hand(self) -> bool:
        """Whether no optimizer has stepped so far, but the script has without one."""
        return self._by_hand > 0

    @property
    def none_by_optimizer(self) -> bool:
        """Whether no optimizer has stepped so far."""
        return self.steps == self._by_hand

    @property
    def steps_of_iteration(self) -> int:
        """The mean number of steps of an iteration: more than one where several optimizers step in turn, as of a GAN."""
        return max(1, round(self.steps / max(1, self.iterations)))

    def steps_of(self, optimizer: int) -> int:
        """Return the number of steps that were counted for this index of optimizers so far."""
        return sum(counts[optimizer] for counts in (self._flushed_by, self._by_optimizer) if optimizer < len(counts))

    def stop_if_done(self) -> None:
        """Raise `RunStopped` if the script has reached the requested number of steps."""
        if self._stop_after is not None and self.steps >= self._stop_after:
            raise RunStopped

    def put_off(self, executed: int) -> int:
        """Let the script go on for as many steps after `executed` ones as it was to make. Return by how many that is later."""
        if self._stop_after is None or self._wanted is None:
            return 0
        before, self._stop_after = self._stop_after, executed + self._wanted
        return self._stop_after - before

    def end_after(self, steps: int) -> None:
        """End the script after so many steps of the run."""
        self._stop_after = steps

    def allow(self, more: int) -> None:
        """Let the script make so many more steps than it was to make."""
        if self._stop_after is not None:
            self._stop_after += more

    def is_last(self, executed: int) -> bool:
        """Return whether the script ends after the step that follows `executed` steps."""
        return self._stop_after is not None and executed + 1 >= self._stop_after

    def steps_until_due(self) -> int:
        """Return how many steps after the next one are certainly not the last. The last one must raise where it ends."""
        return sys.maxsize if self._stop_after is None else self._stop_after - self.steps - 2

    def skipped(self) -> None:
        """Count a step that a loss scaler skipped."""
        self._skipped += 1
        self.left_out += 1
        self.ended += 1

    def was_skipped(self, optimizer: int, *, is_newest: bool) -> None:
        """Uncount a step of the optimizer with this index: a device reported later that the step was skipped."""
        self.steps -= 1
        self.iterations = min(self.iterations, self.steps)
        self._by_optimizer[optimizer] -= 1
        self._skipped += 1
        if is_newest:
            self.left_out = self._left_out_before + 1

    def sampled(self, seconds: float, *, is_exempt: bool) -> None:
        """Add the overhead, in seconds, of the newest step, which was sampled within the budget or regardless of it."""
        if not self._flushed[0] or self.steps <= self.setup_steps:
            return
        if is_exempt:
            self._exempt_steps += 1
            self._exempt_seconds += seconds
        else:
            self._paid_steps += 1
            self._paid_seconds += seconds

    def is_due(self, now: int) -> bool:
        """Return whether an event is due at this time in nanoseconds."""
        return now - self._flushed_at >= FLUSH_NS

    def flush(
        self,
        now: int,
        at: float,
        phases: tuple[PhaseTime, ...],
        own_ns: int,
        listing_ns: int,
        on_device: OwnDeviceTime,
        norms_every: int,
        ledger_every: int,
        readings_dropped: int = 0,
        epoch: tuple[int | None, int | None] = (None, None),
        readings_without_room: int = 0,
    ) -> Progress:
        """Return an event with the counts since the last flush."""
        steps, micro_steps = self._flushed
        event = Progress(
            at,
            self.steps,
            max(0, self.steps - steps),
            self.micro_steps - micro_steps,
            self._skipped,
            tuple(self._by_optimizer),
            phases,
            own_ns / 1e9 + on_device.excess,
            norms_every,
            ledger_every,
            readings_dropped,
            self._exempt_steps,
            self._exempt_seconds + on_device.exempt_excess,
            on_device.device,
            *epoch,
            self.iterations,
            listing_ns / 1e9,
            self._paid_steps,
            self._paid_seconds,
            readings_without_room,
            self._without_loss,
        )
        if not steps:
            self.setup_steps = self.steps
        self._exempt_steps, self._exempt_seconds = 0, 0.0
        self._paid_steps, self._paid_seconds = 0, 0.0
        self._flushed = (self.steps, self.micro_steps)
        self._skipped = 0
        self._flushed_by += [0] * (len(self._by_optimizer) - len(self._flushed_by))
        self._flushed_by = [before + new for before, new in zip(self._flushed_by, self._by_optimizer)]
        self._by_optimizer = [0] * len(self._by_optimizer)
        if event.steps or event.skipped_steps or not self._flushed_at:
            # A later event within a step does not put off that of its end.
            self._flushed_at = now
        return event
