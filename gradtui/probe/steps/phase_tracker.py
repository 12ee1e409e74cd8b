"""Which phase the training thread is in, and how long it has been in each. Pure: it is told what happens and when.

A phase lasts from one happening to the next, so that the phases' seconds always add up to the run's, but for pauses:
`forward` goes on after the root module returns (the loss is part of it) until backward or the optimizer begins, `other` is
what follows a backward (clipping, logging), `data` what follows a step. Innermost wins: a forward inside an optimizer's
closure is `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradtui.protocol.events import PhaseTime
from gradtui.protocol.vocabulary import Phase

# Names of this module's own: looking a member up in its enumeration takes Python 3.11 60 ns.
_LOAD, _DATA, _FORWARD, _BACKWARD = Phase.LOAD, Phase.DATA, Phase.FORWARD, Phase.BACKWARD
_OPTIMIZER, _ZERO_GRAD, _EVAL, _OTHER = Phase.OPTIMIZER, Phase.ZERO_GRAD, Phase.EVAL, Phase.OTHER


class PhaseTracker:
    """The state machine of phases. Times are nanoseconds of one monotonic clock."""

    def __init__(self, now: int) -> None:
        self.phase = _LOAD
        self.ended: Callable[[Phase], None] | None = None
        """Called with each phase that is left, when somebody wants to know."""
        self.marked: Callable[[], Phase | None] = lambda: None
        """What has happened since but is not told yet: the phase now, None if there is nothing."""
        self.since = now
        """The moment up to which the time has been given to phases."""
        self._held = False
        self._nanoseconds = dict.fromkeys(Phase, 0)
        self._counts = dict.fromkeys(Phase, 0)
        self._counts[_LOAD] = 1
        self._interrupted: list[Phase] = []
        self._after_step: list[Phase] = []

    def forward_began(self, now: int) -> None:
        """A root module is called, with autograd recording."""
        if self.phase is not _FORWARD:
            self._switch(_FORWARD, now, True)

    def eval_began(self, now: int) -> None:
        """A root module is called under no_grad or in eval mode."""
        self._interrupt(_EVAL, now)

    def eval_ended(self, now: int) -> None:
        """That call returned."""
        self._resume(now)

    def on_backward_pre(self, now: int) -> None:
        """An outermost backward begins."""
        self._interrupted.clear()
        self._switch(_BACKWARD, now, True)

    def on_backward_post(self, now: int, *, in_step: bool) -> None:
        """It ended; `in_step` says that an optimizer's closure called it."""
        self._switch(_OPTIMIZER if in_step else _OTHER, now, not in_step)

    def grad_began(self, now: int) -> None:
        """An outermost `torch.autograd.grad` begins: backward work in the middle of something else."""
        self._interrupt(_BACKWARD, now)

    def grad_ended(self, now: int) -> None:
        """It ended."""
        self._resume(now)

    def on_step_pre(self, now: int) -> None:
        """An optimizer's outermost step begins."""
        # A step inside backward (one optimizer per parameter) gives the backward back when it is done.
        self._after_step.append(_BACKWARD if self.phase is _BACKWARD else _DATA)
        self._switch(_OPTIMIZER, now, True)

    def on_step_post(self, now: int) -> None:
        """It ended."""
        following = self._after_step.pop() if self._after_step else _DATA
        self._switch(following, now, following is _DATA)

    def steps_open(self, count: int) -> None:
        """Only so many steps are still running: the others raised, and never said that they ended."""
        del self._after_step[count:]

    def on_zero_grad_pre(self, now: int) -> None:
        """Gradients are being cleared."""
        self._interrupt(_ZERO_GRAD, now)

    def on_zero_grad_post(self, now: int) -> None:
        """They are cleared."""
        self._resume(now)

    def data_began(self, now: int) -> None:
        """A DataLoader is asked for a batch."""
        if self.phase in (_FORWARD, _OTHER):
            self._switch(_DATA, now, True)

    @property
    def state(self) -> tuple[Phase, tuple[Phase, ...], tuple[Phase, ...]]:
        """All that decides what the next happening means: after equal happenings from equal states come equal states."""
        return self.phase, tuple(self._interrupted), tuple(self._after_step)

    @property
    def counts(self) -> dict[Phase, int]:
        """How often each phase was entered since the last `take`."""
        return dict(self._counts)

    def went_round(self, now: int, nanoseconds: Mapping[Phase, int], counts: Mapping[Phase, int]) -> None:
        """Until `now` nobody told what happened; it took these times, and all is in the state it was in before."""
        for phase, spent in nanoseconds.items():
            self._nanoseconds[phase] += spent
        for phase, entered in counts.items():
            self._counts[phase] += entered
        self.since = now

    def pause_began(self, now: int) -> None:
        """The person holds the training thread: that time belongs to no phase."""
        self._nanoseconds[self.phase] += now - self.since
        self._held = True

    def pause_ended(self, now: int) -> None:
        """The person lets it go on."""
        self.since = now
        self._held = False

    def evaluation_was_training(self, nanoseconds: int) -> None:
        """A call taken for evaluation was followed by a backward: it was a forward after all.

        Its time may already have been taken; then the next `take` carries it back with a negative figure.
        """
        self._nanoseconds[_EVAL] -= nanoseconds
        self._nanoseconds[_FORWARD] += nanoseconds
        self._counts[_EVAL] -= 1
        self._counts[_FORWARD] += 1

    def take(self, now: int) -> tuple[PhaseTime, ...]:
        """Times and counts since the last `take`, of the phases that have any."""
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

    def _interrupt(self, phase: Phase, now: int) -> None:
        # Loading is over with the first forward of any kind, so evaluation gives way to `data`, not back to `load`.
        before = _DATA if self.phase is _LOAD and phase is _EVAL else self.phase
        self._interrupted.append(before)
        self._switch(phase, now, True)

    def _resume(self, now: int) -> None:
        before = self._interrupted.pop() if self._interrupted else _OTHER
        self._switch(before, now, False)

    def _switch(self, phase: Phase, now: int, entered: bool) -> None:
        self._nanoseconds[self.phase] += now - self.since
        self.since = now
        if entered:
            self._counts[phase] += 1
        left, self.phase = self.phase, phase
        if self.ended is not None and left is not phase:
            self.ended(left)
