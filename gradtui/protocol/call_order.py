"""The order in which a training loop calls backward, `zero_grad`, gradient clipping and the optimizer."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import Event


@dataclass(frozen=True, slots=True)
class AccumulationWindow:
    """The steps of one optimizer that had the same calls since the step before them.

    A *window* is what runs between two steps: one backward in most loops, several where gradients accumulate.
    """

    optimizer: int
    """Index of the optimizer; -1 where the script updates its parameters itself."""
    applied: int
    """Backwards whose gradients were still there when the optimizer stepped."""
    cleared: int
    """Backwards whose gradients `zero_grad` had cleared by then, with no step in between."""
    forwards: int
    """Training calls of root modules."""
    batches: int
    """Batches that DataLoaders yielded."""
    carries: bool
    """Nothing called `zero_grad` on these parameters since the optimizer's step before."""
    count: int
    """Number of such steps."""
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class LossFactors:
    """Of an optimizer's first steps: those whose losses the script divided and multiplied by the same numbers."""

    optimizer: int
    applied: int
    """Backwards of each of these steps."""
    is_scaled: bool
    """A loss was a sum of quotients by, or products with, a number."""
    divisors: tuple[float, ...]
    """The numbers by which each loss was divided as a whole, the last one first; a factor counts as a division by its inverse.
    Empty where the losses of a step differ."""
    count: int
    """Number of such steps."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """The line of the script, or of a library that it uses, from which something was called first."""

    call: str
    """`backward`, `zero_grad`, `step`, `clip`, or `clearing` for a `zero_grad` between a backward and the step."""
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class EvalModeTraining:
    """A root module whose training calls have run in eval mode since its last one in train mode."""

    module: str
    """Its type."""
    since_step: int
    last_step: int
    calls: int
    trained_before: bool
    """It trained in train mode before."""


@dataclass(frozen=True, slots=True)
class UnfitEvaluations:
    """Evaluations of a root module that trains, in which dropout was on, or normalisation took statistics of the batch."""

    module: str
    """Its type."""
    count: int
    calls: int
    """Forwards in all of them."""
    since_step: int
    """Steps before the first one."""
    layers: tuple[tuple[str, int], ...]
    """(type, number) of its modules that did so."""
    in_train_mode: bool = True
    """Otherwise they call `functional.dropout`, which does not depend on the mode by itself."""


@dataclass(frozen=True, slots=True)
class CallOrderMeasured(Event):
    """The order of calls in the whole run so far. Every step is counted, sampled or not."""

    windows: tuple[AccumulationWindow, ...]
    first_windows: tuple[tuple[int, int], ...]
    """(index of the optimizer, `applied`) of the first windows of the run."""
    clears: int
    """Calls of `zero_grad`."""
    leaf_backwards: int
    """Backwards of a tensor that no operation has computed, so that no gradient reaches any other tensor."""
    skips_in_a_row: int
    """The newest steps that a GradScaler skipped, without an executed step since."""
    clips: int
    """Calls of torch's functions that clip gradients, while a GradScaler is in use."""
    scaled_clips: int
    """Those of them on gradients that were still multiplied by the GradScaler's scale."""
    gradients_compared: tuple[tuple[int, int, int], ...]
    """For each optimizer its index, and of its first steps the number before which gradients were still those of its step
    before, and of those before which they had been cleared."""
    gradients_used: int
    """Of the first calls of `zero_grad` between a backward and the step: those before which the script wrote to parameters
    after that backward, as sharpness-aware minimisation does."""
    gradients_unused: int
    """The other ones."""
    gradients_replaced: int
    """Of the first steps: those before which the script wrote to `.grad` after backward, other than by clipping."""
    loss_is_scaled: bool | None
    """Whether the loss of the first backwards was a quotient by, or a product with, a number; None if unknown."""
    eval_mode: tuple[EvalModeTraining, ...]
    unused_eval_graphs: int
    """Calls in eval mode, outside of `no_grad`, of modules with trainable parameters, that no backward followed."""
    sites: tuple[CallSite, ...]
    backwards_to_others: int = 0
    """Of the first backwards: those of what was computed from leaves alone that no module and no optimizer has."""
    losses: tuple[LossFactors, ...] = ()
    """How the losses of each optimizer's first steps were made."""
    unfit_evaluations: tuple[UnfitEvaluations, ...] = ()
