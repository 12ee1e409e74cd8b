"""Return to the newest finite state by itself, when NaN or Inf has spread or the loss has a spike. Training thread only.

What is read of each step anyway is judged: loss, gradients, spikes. At the boundary after a bad step the run returns, by the
same command as a user's. The script's loader continues, so the batch of that step is not trained on again; and the random
states stay as they are, since a script may draw its batches from them.

Not each NaN is a fault. A loss scaler skips the step, or the script does; then weights, optimizer state and buffers are
finite, and nothing is done. This is looked at, so it does not matter what has skipped the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter_ns

from gradtui.dataclass import dataclass
from gradtui.probe.commands.returns.finite_states import FiniteStates, Rates, rates_of
from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.gradients import GradNormCollector, GradNormSample
from gradtui.probe.kept_states import BUFFERS
from gradtui.probe.runtime import ProbeOptions, ranks
from gradtui.probe.steps import ProbeContext
from gradtui.probe.torch_private.private_names import operations_are_observed
from gradtui.protocol.batches import NamedBatch
from gradtui.protocol.events import ReturnPolicy, ReturnsEnded, SpikeFound
from gradtui.run.text import loss_spike_name
from gradtui.run.text.return_policies import (
    NO_STATE_BEFORE,
    again,
    bad_value,
    bad_values,
    common_words,
    raised_rate,
    refused_on_ranks,
    return_words,
    spike_words,
)

_SHARE, _FREE_S = 0.02, 0.5
"""Checks of what bad steps have done take this share of the run's time at most, and this many seconds besides."""
_PROGRESS = 20
"""Steps after a return that make it one that has helped. What wrong values cause comes back within a few steps; what a bad
sample causes comes back in the next epoch."""
_MOST_RETURNS = 1_000
"""Returns of a policy in a whole run: each is an event that is never dropped."""
_MOST_FAILURES = 3
"""Copies in a row that may fail, each a second after the one before at least."""
_RAISED = 2.0
"""A learning rate that is higher by this factor than in the kept state is named where returns do not help."""
_SAMPLES, _FEW = 4_096, 4
"""Maximum number of samples of a batch that are compared, and how many that all bad batches have are named."""


@dataclass(frozen=True)
class _Fault:
    """What was wrong in a step."""

    policy: ReturnPolicy
    step: int
    words: str
    samples: frozenset[int] = frozenset()
    """The indices of the samples of its batch; empty where they are unknown."""


class ReturnPolicies:
    """The return policies of a run.

    Args:
        context: the parts of the probe.
        options: how many returns without progress each policy makes; 0 for none at all.
        keeping: keeps states, and returns to them.
        norms: measures each step while a policy is on.
        refresh: lists the models as they are now.
    """

    def __init__(
        self,
        context: ProbeContext,
        options: ProbeOptions,
        keeping: StateKeeping,
        norms: GradNormCollector,
        refresh: Callable[[], None],
    ) -> None:
        self._emit, self._clock, self._view = context.emit, context.clock, context.models
        self._counter, self._hooks = context.counter, context.hooks
        self._keeping, self._norms, self._refresh = keeping, norms, refresh
        self._states = FiniteStates(context, keeping)
        limits: dict[ReturnPolicy, int] = {"nan": options.return_at_nan, "spike": options.return_at_spike}
        self._limits = {policy: limit for policy, limit in limits.items() if limit > 0}
        """Of the policies that are on."""
        self._made: dict[ReturnPolicy, int] = dict.fromkeys(self._limits, 0)
        self._vain: dict[ReturnPolicy, int] = dict.fromkeys(self._limits, 0)
        """Those of them since a return of either policy has helped."""
        self._last = 0
        """The executed steps at the newest return of either policy."""
        self._fault: _Fault | None = None
        self._fine = 0
        """The newest step that was fine."""
        self._checked_s = 0.0
        self._failures = 0
        """How many copies in a row were not made."""
        self._returned_at = -1
        """The executed steps at the newest return: what arrives of them later is of no interest."""
        self._common: dict[ReturnPolicy, frozenset[int]] = {}
        """The samples that were in the batches of all faults so far."""
        self._rates: Rates = ()
        """The learning rates in the state that was returned to last."""
        self._ignores = ""
        """What is not finite and does no harm, as in `not_finite`."""
        self.is_on = False
        """Whether a policy is on. Each boundary asks, so that it must cost no call."""
        self._follow()

    def _follow(self) -> None:
        """Have each step measured, and judge it, as long as a policy is on."""
        self.is_on = bool(self._limits)
        self._norms.latest.judge = self._read if self.is_on else None
        self._norms.spikes.judge = self._spiked if "spike" in self._limits else None

    @property
    def is_due(self) -> bool:
        """Whether there is something to do at this boundary."""
        return self._fault is not None or self._states.is_due

    def at_boundary(self) -> None:
        """Return to a kept state if a step was bad, else keep one if it is time."""
        if self._hooks.is_off("return policies") or operations_are_observed():
            return
        with self._hooks.guarded("return policies"):
            if (count := ranks.world_size()) > 1:
                for policy in tuple(self._limits):
                    self._end(policy, refused_on_ranks(count))
                return
            if self._fault is None and self._states.is_due:
                self._keep()
            if self._fault is not None:
                self._decide(self._fault)

    def returned(self) -> None:
        """The run has returned to a kept state: what was wrong with it is over."""
        self._fault, self._returned_at = None, self._keeping.step
        self._norms.spikes.returned()
        self._norms.bad_steps.returned()

    def _read(self, sample: GradNormSample) -> None:
        """Judge a step by its loss and its gradients."""
        if sample.step <= self._returned_at:
            return
        read = {"loss": sample.loss, "gradients": sample.total}
        bad = next(
            ((name, value) for name, value in read.items() if value is not None and not math.isfinite(value)), None
        )
        if bad is not None:
            batches = self._batches(sample.step) or tuple(each.named() for each in sample.batches)
            words = bad_value(*bad, sample.step, batches)
            self._found(_Fault("nan", sample.step, words, _samples(batches)))
        elif not self._norms.spikes.is_above:
            # The weights before or after a spike may be far off, also where no policy returns from one.
            self._fine = sample.step
            self._states.judge(sample.step)

    def _spiked(self, spike: SpikeFound) -> None:
        if spike.step > self._returned_at:
            batches = self._batches(spike.step, after_backward=spike.metric == "norm") or spike.batches
            words = spike_words(loss_spike_name(spike), spike.value, spike.usual, spike.step, batches)
            self._found(_Fault("spike", spike.step, words, _samples(batches)))

    def _found(self, fault: _Fault) -> None:
        # The first one counts. NaN is worse than a spike.
        is_worse = self._fault is None or (self._fault.policy == "spike" and fault.policy == "nan")
        if is_worse and fault.policy in self._limits:
            self._fault = fault

    def _batches(self, step: int, *, after_backward: bool = True) -> tuple[NamedBatch, ...]:
        """Return the batches of the step that has not ended; empty for others."""
        is_present = step == self._counter.steps + 1
        return self._norms.epochs.named(after_backward=after_backward, samples=_SAMPLES) if is_present else ()

    def _keep(self) -> None:
        """Keep the state, if all that was read of the steps before says that it is good, and all values are finite."""
        began, step = perf_counter_ns(), self._keeping.step
        # A device may have read a bad step by now. A copy waits for it too.
        self._norms.wait()
        self._norms.losses.finish()
        if self._fault is not None:
            return
        if self._fine < step:
            self._states.wait(perf_counter_ns() - began)
            return
        self._refresh()
        bad = self._bad_values()
        if not step and BUFFERS in bad:
            # They are not finite as the script made them.
            self._ignores, bad = BUFFERS, [each for each in bad if each != BUFFERS]
        if bad:
            self._states.wait(perf_counter_ns() - began)
            self._found(_Fault("nan", step, bad_values(bad[0], step)))
            return
        objection = self._states.keep(began)
        # Before the first step there may be nothing to copy. A later copy may find no memory for the moment, but a return to a
        # state that has become old would cost more than it saves.
        self._failures = self._failures + 1 if objection is not None and step else 0
        has_none = not self._states.before(step + 1, only_judged=False)
        if objection is not None and self._failures >= (1 if has_none else _MOST_FAILURES):
            for policy in tuple(self._limits):
                self._end(policy, objection)

    def _bad_values(self) -> list[str]:
        return [each for each in self._keeping.not_finite() if each != self._ignores]

    def _decide(self, fault: _Fault) -> None:
        if fault.policy == "nan" and not self._has_spread():
            return
        self._return(fault, fault.policy)
        self._fault = None

    def _has_spread(self) -> bool:
        """Return whether what training continues from has NaN or Inf. Where bad steps are many, some wait for this check."""
        if self._checked_s > _FREE_S + _SHARE * self._clock.at():
            return False
        began = perf_counter_ns()
        has_spread = bool(self._bad_values())
        self._checked_s += (perf_counter_ns() - began) / 1e9
        if not has_spread:
            self._fault = None
        return has_spread

    def _return(self, fault: _Fault, policy: ReturnPolicy) -> None:
        if fault.step - self._last > _PROGRESS:
            self._vain = dict.fromkeys(self._vain, 0)
        made, vain, limit = self._made[policy], self._vain[policy], self._limits[policy]
        known = self._common.get(policy)
        common = self._common[policy] = fault.samples if known is None else fault.samples & known
        each = common_words(sorted(common)) if made and len(common) <= _FEW else ""
        if vain >= limit or made >= _MOST_RETURNS:
            self._end(policy, again(fault.words, made, each or self._raised()))
            return
        why = return_words(fault.words, vain + 1, limit, made + 1) + each
        refusal = None
        # With a spike the weights before that step may be what is wrong.
        for state in self._states.before(fault.step, only_judged=policy == "spike"):
            refusal = self._keeping.return_by_itself(state.kept, why)
            if refusal is None:
                self._made[policy], self._vain[policy] = made + 1, vain + 1
                self._last = self._keeping.step
                self._rates = state.rates
                self._states.returned_to(state)
                return
        self._end(policy, f"{fault.words}: {refusal if refusal is not None else NO_STATE_BEFORE}")

    def _raised(self) -> str:
        """Return in words that a learning rate is higher than in the state that was returned to; empty if none is."""
        rates = rates_of(self._view.live_optimizers())
        raised = [
            (now, then)
            for now, then in zip(rates, self._rates)
            if now is not None and then is not None and now > _RAISED * then
        ]
        return raised_rate(*raised[0]) if raised else ""

    def _end(self, policy: ReturnPolicy, reason: str) -> None:
        del self._limits[policy]
        self._follow()
        self._emit(ReturnsEnded(self._clock.at(), self._keeping.step, policy, self._made[policy], reason))


def _samples(batches: tuple[NamedBatch, ...]) -> frozenset[int]:
    return frozenset(batches[0].samples) if len(batches) == 1 else frozenset()
