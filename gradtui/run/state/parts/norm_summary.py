"""The total gradient norms of a run in a few figures."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass
class NormSummary:
    """First, last and extreme values of the total gradient norm of one set of models."""

    since_step: int = 0
    """The step at which the models of these norms were found; 0 for the first ones."""
    steps_before: int = 0
    """Steps that the main optimizer had made before those that are summarised."""
    of_earlier_models: bool = False
    """Other models have been found since: the next norm begins a new summary."""
    replaced_at: int = 0
    """The step at which those other models were found."""
    steps_when_replaced: int = 0
    """Steps that the main optimizer had made then."""
    first: float | None = None
    first_step: int | None = None
    last: float | None = None
    last_step: int | None = None
    smallest: float | None = None
    smallest_step: int | None = None
    largest: float | None = None
    largest_step: int | None = None
    measured_steps: int = 0
    not_finite_steps: int = 0
    unconfirmed_steps: int = 0
    """Measured steps whose gradients may have changed between the reading and the update."""
