"""Find the first step with NaN or Inf, and the phase, module and parameter they appeared in. Runs on the training thread.

On the CPU a loss can be read as backward begins, before its graph is freed. Then weights, batch and graph are checked, for at
most `_SECONDS` of the whole run. On a device all results come from readings that are made anyway, some steps late; what they
do not contain is not reported (checked on a simulated device only).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import torch

from gradtui.probe.autograd import OUTSIDE, ModuleCallLogger
from gradtui.probe.gradients.grad_norms import GradNorms, GradNormSample, plain_gradient
from gradtui.probe.gradients.newest_backward import NewestBackward, facts_of
from gradtui.probe.gradients.nonfinite_check import (
    FINITE,
    INF,
    NAN,
    BadParameters,
    Kinds,
    NonFiniteCheck,
    kind_of,
    of_clipped,
    worst,
)
from gradtui.probe.gradients.nonfinite_forward import find_origin
from gradtui.probe.memory import BatchStorages, devices_with_room
from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.probe.steps import Epochs, ProbeContext
from gradtui.probe.torch_private.private_names import gradient_of, operations_are_observed
from gradtui.protocol.commands import PauseAtBadStep
from gradtui.protocol.events import NonFiniteFound, NonFiniteOutcome, NonFiniteSettled
from gradtui.protocol.vocabulary import Phase
from gradtui.run.text import refusals
from gradtui.run.text.bad_steps import nonfinite_text

_SECONDS = 2.0
_MAX = 20
"""Maximum number of reports per run."""
_UNDER_WAY = 8
"""At least the maximum number of readings under way from a device."""


class _Measured(NamedTuple):
    """A step whose gradients are being measured."""

    is_left_out: bool
    """A loss scaler skips the step if its gradients are not finite."""
    optimizer: weakref.ref[object] | None
    """None if the script updates its parameters itself."""


class NonFiniteDetector:
    """Reports each time that values stop being finite, and may pause the run then.

    Args:
        context: the probe's context.
        tracer: logs the module calls of sampled steps.
        batches: the step's batch, if it was recorded.
        hold: pauses the run as the command requested, for the reason in words; returns False if it rejects the command.
    """

    def __init__(
        self,
        context: ProbeContext,
        tracer: ModuleCallLogger,
        batches: BatchStorages,
        hold: Callable[[PauseAtBadStep, str], bool],
    ) -> None:
        self.pauses = False
        """Whether to pause the run at the next step that is not finite. Until then every step is measured."""
        self.bad_gradients: int | None = None
        """The newest measured step, if its gradients are not finite."""
        self.epochs: Epochs | None = None
        self.found: Callable[[NonFiniteFound, str], None] = lambda _event, _words: None
        """Called with each report of the step that has not ended, and its words."""
        self._wish = PauseAtBadStep(0)
        """The command that requested the pause."""
        self.left_out = False
        """The next measured step is one that a loss scaler skips: Inf in the gradients is how it finds its scale."""
        self._tracer, self.batches, self._hold = tracer, batches, hold
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter = context.counter
        self._parameters = BadParameters(context.models)
        self._weights = GradNorms(self._weights_read)
        self._found = 0
        self.is_bad = False
        """The newest values were not finite, and that was reported."""
        self._last_finite: int | None = None
        self._left_s = _SECONDS
        self._finite_losses = 0
        """Number of finite losses in the current step."""
        self._before_step: int | None = None
        """The step whose gradients are being measured, as long as its weights are unchanged."""
        self._under_way: dict[int, _Measured] = {}
        """Steps whose readings have not arrived yet."""
        self._bad_of: weakref.ref[object] | None = None
        """The optimizer with the most recent non-finite gradients. While it is alive, a finite step of another optimizer does
        not end the non-finite period."""
        self._clipped: Kinds = {}
        """Gradients that were not finite before the script clipped them."""
        self._newest = NewestBackward()
        self.note_root = self._newest.note_root
        """Records the tensor on the CPU that a backward is called on, whose gradients will be measured."""
        self._unsettled: int | None = None
        """The number of the newest report, if the step of these values has not ended."""

    def set_pause(self, command: PauseAtBadStep) -> CommandResult:
        """Apply the command. Raises `CommandRefused`."""
        if command.on == self.pauses:
            raise NothingToDo(refusals.ALREADY_SO)
        if command.on and self.is_bad:
            raise CommandRefused(refusals.ALREADY_NOT_FINITE)
        self.pauses, self._wish = command.on, command
        now = "pauses at the first NaN or Inf; until then every step is measured, whatever the budget"
        return CommandResult(now if command.on else "no longer pauses at the first NaN or Inf", ())

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new indices of parameters and modules."""
        self._parameters.called = ()
        self._weights.tree_changed(moved)
        self._clipped = {}

    def on_loss(self, loss: float, outputs: Any, *, is_scaled: bool) -> None:
        """Check a loss on the CPU as backward begins on `outputs`; `loss` has no loss scaler's factor."""
        if self.is_bad:
            return
        self.note_root(outputs[0] if isinstance(outputs, (tuple, list)) else outputs)
        kind = kind_of(loss)
        if kind == FINITE or (is_scaled and kind != NAN):
            # The loss scaler's factor may have turned a finite loss into Inf, which then does no harm.
            self._finite_losses += 1
            if self._tracer.on and not operations_are_observed():
                self._newest.read_slopes(self._batch_facts(after_backward=False))
            return
        began = perf_counter()
        check = NonFiniteCheck(self._left_s)
        found = self._weights_before(check) or self._forward(kind, outputs, check)
        self._left_s -= perf_counter() - began
        self._report(found)

    def clipping(self) -> None:
        """Check the gradients before the script clips them: on the CPU, at steps whose module calls are logged."""
        if not self._tracer.on or self.is_bad or self._left_s <= 0 or operations_are_observed():
            return
        self._clipped = self._parameters.gradients(NonFiniteCheck(self._left_s))

    def measuring(self, step: int, optimizer: object, *, has_run: bool = False) -> None:
        """Prepare to measure the gradients of this step. `has_run`: the step may already have changed the weights."""
        self._before_step = None if has_run else step
        # A fused optimizer reads the scaler's `found_inf` itself, and does nothing if that is set.
        is_left_out = self.left_out or getattr(optimizer, "found_inf", None) is not None
        self._under_way[step] = _Measured(is_left_out, weakref.ref(optimizer) if optimizer is not None else None)
        self.left_out = False
        if len(self._under_way) > _UNDER_WAY:
            del self._under_way[next(iter(self._under_way))]

    def read(self, reading: GradNormSample) -> None:
        """Handle a reading of loss and gradients."""
        measured = self._under_way.pop(reading.step, _Measured(False, None))
        loss = FINITE if reading.loss is None else kind_of(reading.loss)
        total = FINITE if reading.total is None else kind_of(reading.total)
        self.bad_gradients = reading.step if total != FINITE else None
        if loss == total == FINITE:
            bad = self._bad_of() if self._bad_of is not None else None
            if not self.is_bad or bad is None or (measured.optimizer is not None and measured.optimizer() is bad):
                self._last_finite, self.is_bad, self._bad_of = reading.step, False, None
            return
        if self.is_bad:
            self._bad_of = self._bad_of or measured.optimizer
            return
        if measured.is_left_out and loss != NAN:
            return
        self._bad_of = measured.optimizer
        if loss != FINITE:
            # Only from a device: weights and graph have changed by now.
            # Its norm may have arrived before its loss, and was finite.
            earliest = min(self._after_finite, reading.step)
            facts = self._late_facts(reading) if earliest == reading.step else {}
            self._report(self._event(reading.step, loss, None, exact=False, earliest=earliest, **facts))
        else:
            self._report(self._backward(reading))

    def returned(self) -> None:
        """Note that the run has returned to an earlier state: what is not finite from now on is reported again."""
        self.is_bad, self._bad_of, self._unsettled = False, None, None

    def stepped(self, *, is_skipped: bool) -> None:
        """End the step, whether it was executed or skipped."""
        self._finite_losses, self._clipped, self._before_step = 0, {}, None
        self._newest.clear()
        if self._unsettled is not None and not operations_are_observed():
            self._settle(is_skipped=is_skipped)
        if self._tracer.on and self._tracer.trace.grad_modes:
            self._parameters.called = self._tracer.trace.grad_modes
        self._weights.poll()
        if self.pauses and not self.is_bad and not operations_are_observed():
            live = [(index, plain_gradient(each.detach())) for index, each in self._parameters.live()]
            if all(devices_with_room(each for _, each in live).values()):
                self._weights.measure(self._counter.steps, live)

    def _settle(self, *, is_skipped: bool) -> None:
        """Tell what came of the step."""
        number, self._unsettled = self._unsettled, None
        began = perf_counter()
        bad, are_known = self._parameters.weights(NonFiniteCheck(self._left_s))
        self._left_s -= perf_counter() - began
        index = self._parameters.nearest(bad)
        if number is None or (index is None and not are_known):
            return
        left_out_by = "scaler" if is_skipped else "" if self.is_bad else "script"
        outcome = NonFiniteOutcome(
            self._counter.steps + is_skipped,
            left_out_by,
            not bad,
            self._parameters.path(index) if index is not None else None,
            max(0, len(bad) - 1),
        )
        self._emit(NonFiniteSettled(self._clock.at(), self._counter.steps, number, outcome))

    def finish(self) -> None:
        """Read the most recently measured weights. May wait for a device."""
        self._weights.finish()

    def _weights_read(self, reading: GradNormSample) -> None:
        if self.is_bad or reading.total is None or math.isfinite(reading.total):
            return
        bad, is_sure = self._parameters.of_reading(reading, lambda parameter: parameter, NonFiniteCheck(self._left_s))
        exact = is_sure and self._last_finite == reading.step
        self._report(self._of_weights(bad, reading.step, Phase.OPTIMIZER, exact=exact))

    def _weights_before(self, check: NonFiniteCheck) -> NonFiniteFound | None:
        """Report weights that were not finite before backward, and therefore caused the loss."""
        steps, (bad, _) = self._counter.steps, self._parameters.weights(check)
        if self._finite_losses:
            # An optimizer's closure: the optimizer changes the weights between its calls.
            return self._of_weights(bad, steps + 1, Phase.OPTIMIZER)
        return self._began_bad(bad, steps + 1)

    def _began_bad(self, bad: Kinds, step: int) -> NonFiniteFound | None:
        """Return the report for `step` if these weights were not finite as it began; None if there are none."""
        if step == 1:
            return self._of_weights(bad, 1, Phase.LOAD)
        if self._last_finite == step - 1:
            return self._of_weights(bad, step - 1, Phase.OPTIMIZER)
        return self._of_weights(bad, step, None, exact=False, earliest=self._after_finite)

    @property
    def _after_finite(self) -> int:
        """The step after the last one that was measured and finite."""
        return (self._last_finite or 0) + 1

    def _of_weights(self, bad: Kinds, step: int, phase: Phase | None, **facts: Any) -> NonFiniteFound | None:
        index = self._parameters.nearest(bad)
        if index is None:
            return None
        path = self._parameters.path(index)
        if phase is Phase.OPTIMIZER:
            facts["learning_rate"] = self._parameters.learning_rate(index)
            facts |= self._parameters.of_update(index, bad[index]) if facts.get("exact", True) else {}
        return self._event(step, bad[index], phase, parameter=path, others=len(bad) - 1, **facts)

    def _forward(self, kind: str, outputs: Any, check: NonFiniteCheck) -> NonFiniteFound:
        step = self._counter.steps + 1
        batch = [check.at(each) for each in self.batches.tensors()]
        in_batch = worst(each for each in batch if each is not None)
        if in_batch in (NAN, INF):
            return self._event(step, in_batch, Phase.DATA)
        is_finite = bool(batch) and all(each == FINITE for each in batch)
        said = self._event(step, kind, Phase.FORWARD, batch_is_finite=is_finite)
        roots = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        trace = self._tracer.trace if self._tracer.on else None
        tree = self._view.tree
        origin = find_origin([each for each in roots if isinstance(each, torch.Tensor)], kind, tree, trace, check)
        if origin is None:
            return replace(said, exact=False)
        paths = [tree.modules[index].path if index != OUTSIDE else None for index in (origin.module, origin.last)]
        return replace(
            said,
            value=_kind_words(origin.kind),
            module=paths[0],
            until=paths[1],
            is_input=origin.is_input,
            exact=origin.is_exact,
            **facts_of(origin.made),
        )

    def _backward(self, reading: GradNormSample) -> NonFiniteFound | None:
        began = perf_counter()
        check = NonFiniteCheck(self._left_s)
        bad, is_sure = self._parameters.of_reading(reading, gradient_of, check)
        if not bad:
            return None
        # After an optimizer has applied NaN, its gradients are NaN at every step.
        weights, are_known = self._parameters.weights(check) if self._before_step == reading.step else ({}, False)
        self._left_s -= perf_counter() - began
        if weights:
            return self._began_bad(weights, reading.step)
        is_this_step = (are_known and -1 not in bad) or self._after_finite == reading.step
        bad, is_known = of_clipped(bad, reading.before_clipping, self._clipped)
        index = self._parameters.nearest(bad) if is_known else None
        operation, facts = None, dict[str, Any]()
        if is_known and is_this_step:
            tensors = [(each, kind) for at, kind in bad.items() if (each := self._parameters.at(at)) is not None]
            operation, facts = self._newest.source(tensors, is_logged=self._tracer.on, is_over=lambda: check.is_over)
        if is_this_step:
            facts |= self._late_facts(reading)
        return self._event(
            reading.step,
            worst(bad.values()) if index is None else bad[index],
            Phase.BACKWARD,
            parameter=self._parameters.path(index) if index is not None else None,
            others=len(bad) - 1,
            exact=is_sure and is_known and reading.loss is not None and is_this_step,
            earliest=None if is_this_step else self._after_finite,
            operation=operation,
            **facts,
        )

    def _event(self, step: int, kind: str, phase: Phase | None, **facts: Any) -> NonFiniteFound:
        value = _kind_words(kind)
        is_present = phase in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD) and step == self._counter.steps + 1
        if is_present and "batches" not in facts and facts.get("earliest") is None:
            facts |= self._batch_facts(after_backward=phase is Phase.BACKWARD)
        return NonFiniteFound(self._clock.at(), step, self._found + 1, value, phase, self._last_finite, **facts)

    def _late_facts(self, reading: GradNormSample) -> dict[str, Any]:
        """Return the batches of a step whose figures are of a device, if they are known."""
        return {"batches": tuple(each.named() for each in reading.batches)} if reading.batches else {}

    def _batch_facts(self, *, after_backward: bool) -> dict[str, Any]:
        return {"batches": self.epochs.named(after_backward=after_backward) if self.epochs is not None else ()}

    def _report(self, found: NonFiniteFound | None) -> None:
        if found is None:
            return
        self.is_bad = True
        self._found += 1
        was_requested, self.pauses = self.pauses, False
        words = nonfinite_text(found)
        if found.step == self._counter.steps + 1:
            self.found(found, words)
        holds = was_requested and self._hold(self._wish, words)
        if found.phase in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD):
            self._unsettled = self._found
        if self._found <= _MAX or was_requested:
            self._emit(replace(found, holds=holds))


def _kind_words(kind: str) -> str:
    return NAN if kind == NAN else INF
