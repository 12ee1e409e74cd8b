"""Track the phase of the training thread and the time spent in each. Pure: the caller passes events and their times.

A phase lasts from one event to the next, so that the seconds of all phases always add up to those of the run, except for
pauses. `forward` continues after the root module returns (the loss is part of it) until backward or the optimizer begins.
`other` follows a backward (clipping, logging), and `data` follows a step. The innermost phase counts: a forward inside an
optimizer's closure is `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradtui.probe.steps.step_times import StepTimes
from gradtui.protocol.events import PhaseTime
from gradtui.protocol.step_times import StepPart
from gradtui.protocol.vocabulary import Phase

# Names of this module's own: on Python 3.11 looking up a member of an enumeration takes 60 ns.
_LOAD, _DATA, _FORWARD, _BACKWARD = Phase.LOAD, Phase.DATA, Phase.FORWARD, Phase.BACKWARD
_OPTIMIZER, _EVAL, _OTHER = Phase.OPTIMIZER, Phase.EVAL, Phase.OTHER
_PART = {
    Phase.LOAD: StepPart.OTHER,
    Phase.DATA: StepPart.OTHER,
    Phase.FORWARD: StepPart.FORWARD,
    Phase.BACKWARD: StepPart.BACKWARD,
    Phase.OPTIMIZER: StepPart.OPTIMIZER,
    Phase.ZERO_GRAD: StepPart.OPTIMIZER,
    Phase.EVAL: StepPart.EVALUATION,
    Phase.OTHER: StepPart.OTHER,
}


class PhaseTracker:
    """The state machine of phases. Times are nanoseconds of one monotonic clock."""

    def __init__(self, now: int, own_until: Callable[[int], int] = lambda _now: 0) -> None:
        self.phase = _LOAD
        self.times = StepTimes(now, own_until)
        """The same time by the parts of a step."""
        self.ended: Callable[[Phase], None] | None = None
        """Called with each phase that ends; None if no caller needs it."""
        self.since = now
        """The time up to which phases have been charged."""
        self._held = False
        self._nanoseconds = dict.fromkeys(Phase, 0)
        self._counts = dict.fromkeys(Phase, 0)
        self._counts[_LOAD] = 1
        self._interrupted: list[Phase] = []
        self._after_step: list[Phase] = []

    def listen(self, ended: Callable[[Phase], None] | None) -> Callable[[Phase], None] | None:
        """Call `ended` with each phase that ends from now on. Return what was called before."""
        before, self.ended = self.ended, ended
        return before

    def forward_began(self, now: int) -> None:
        """Handle a call of a root module with autograd recording."""
        if self.phase is not _FORWARD:
            self.times.switch(StepPart.FORWARD, now)
            self._switch(_FORWARD, now, True)

    def on_backward_pre(self, now: int) -> None:
        """Handle the start of an outermost backward."""
        self._interrupted.clear()
        self._enter(_BACKWARD, now, True)

    def on_backward_post(self, now: int, *, in_step: bool) -> None:
        """Handle the end of a backward. `in_step` says that an optimizer's closure called it."""
        self._enter(_OPTIMIZER if in_step else _OTHER, now, not in_step)

    def on_step_pre(self, now: int) -> None:
        """Handle the start of an optimizer's outermost step."""
        # After a step inside backward (one optimizer per parameter) the phase is backward again.
        self._after_step.append(_BACKWARD if self.phase is _BACKWARD else _DATA)
        self._enter(_OPTIMIZER, now, True)

    def on_step_post(self, now: int) -> None:
        """Handle the end of an optimizer's step."""
        following = self._after_step.pop() if self._after_step else _DATA
        is_sampled = self.ended is not None
        self._enter(following, now, following is _DATA)
        if following is _DATA:
            self.times.step_ended(is_sampled=is_sampled)

    def steps_open(self, count: int) -> None:
        """Keep only the `count` outermost steps: the others raised, and were never reported as ended."""
        del self._after_step[count:]

    def data_began(self, now: int) -> None:
        """Handle the request of a batch from a DataLoader."""
        self.times.wait_began(now)
        if self.phase in (_FORWARD, _OTHER):
            self._switch(_DATA, now, True)

    def data_ended(self, now: int) -> None:
        """Handle the arrival of that batch, or the end of all batches. The phase continues: the script prepares the batch."""
        self.times.wait_ended(now)

    def loader_began(self, now: int) -> None:
        """Handle that the script iterates over a DataLoader, which may start workers."""
        self.times.loader_began(now)
        if self.phase in (_FORWARD, _OTHER):
            self._switch(_DATA, now, True)

    def loader_ended(self, now: int) -> None:
        """Handle that this iteration can begin."""
        self.times.loader_ended(now)

    @property
    def state(self) -> tuple[Phase, tuple[Phase, ...], tuple[Phase, ...]]:
        """All that determines the effect of the next event: equal events in equal states lead to equal states."""
        return self.phase, tuple(self._interrupted), tuple(self._after_step)

    @property
    def counts(self) -> dict[Phase, int]:
        """The number of times each phase was entered since the last `take`."""
        return dict(self._counts)

    def went_round(self, now: int, nanoseconds: Mapping[Phase, int], counts: Mapping[Phase, int]) -> None:
        """Add the times and counts of repeated events up to `now`, which leave the state as it was before."""
        for phase, spent in nanoseconds.items():
            self._nanoseconds[phase] += spent
        for phase, entered in counts.items():
            self._counts[phase] += entered
        self.since = now

    def pause_began(self, now: int) -> None:
        """Handle the start of a pause by the user. Its time belongs to no phase."""
        self._nanoseconds[self.phase] += now - self.since
        self.times.switch(self.times.part, now)
        self._held = True

    def pause_ended(self, now: int) -> None:
        """Handle the end of a pause."""
        self.since = now
        self.times.pause_ended(now)
        self._held = False

    def evaluation_was_training(self, nanoseconds: int) -> None:
        """Count a call as forward that was counted as evaluation, since a backward followed it.

        Its time may already have been taken; then the next `take` corrects it with a negative number.
        """
        self.times.evaluation_was_training(nanoseconds)
        self._nanoseconds[_EVAL] -= nanoseconds
        self._nanoseconds[_FORWARD] += nanoseconds
        self._counts[_EVAL] -= 1
        self._counts[_FORWARD] += 1

    def take(self, now: int) -> tuple[PhaseTime, ...]:
        """Return and reset the times and counts since the last `take`, of the phases that have any."""
        if not self._held:
            self._nanoseconds[self.phase] += now - self.since
            self.since = now
        taken = tuple(
            PhaseTime(phase, self._nanoseconds[phase] / 1e9, self._counts[phase])
            for phase in Phase
            if self._nanoseconds[phase] or self._counts[phase]
        )
        self._nanoseconds = dict.fromkeys(Phase, 0)
        self._counts = dict.fromkeys(Phase, 0)
        return taken

    def interrupt(self, phase: Phase, now: int) -> None:
        """Begin a phase in the middle of another: an evaluation, `zero_grad`, or the backward of `torch.autograd.grad`."""
        # The first forward of any kind ends loading, so that `data`, not `load`, follows an evaluation.
        before = _DATA if self.phase is _LOAD and phase is _EVAL else self.phase
        self._interrupted.append(before)
        self.times.interrupt(_PART[phase], now)
        self._switch(phase, now, True)

    def resume(self, now: int) -> None:
        """End that phase: the one before it continues."""
        before = self._interrupted.pop() if self._interrupted else _OTHER
        self.times.resume(now)
        self._switch(before, now, False)

    def _enter(self, phase: Phase, now: int, entered: bool) -> None:
        self.times.switch(_PART[phase], now)
        self._switch(phase, now, entered)

    def _switch(self, phase: Phase, now: int, entered: bool) -> None:
        self._nanoseconds[self.phase] += now - self.since
        self.since = now
        if entered:
            self._counts[phase] += 1
        left, self.phase = self.phase, phase
        if self.ended is not None and left is not phase:
            self.ended(left)
