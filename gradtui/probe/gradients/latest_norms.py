"""Keep the newest gradient norm of each listed parameter and the step it belongs to. Training thread."""

from __future__ import annotations

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.model import IndexMapping, ModelRegistry


class LatestNorms:
    """Gradient norms by parameter index. On a device they lag by one reading."""

    def __init__(self, view: ModelRegistry) -> None:
        self.by_index: dict[int, float] = {}
        """Parameter index -> norm when its optimizer last applied it. Index -1 stands for parameters of no listed model."""
        self._read_at: dict[int, int] = {}
        """Parameter index -> step of its norm."""
        self._view = view

    def tree_changed(self, moved: IndexMapping) -> None:
        """Apply new parameter indices. The norms of parameters that were listed before remain known."""
        self.by_index = moved.of_parameters(self.by_index)
        self._read_at = moved.of_parameters(self._read_at)

    def update(self, reading: GradNormSample) -> None:
        """Store the norms of a reading."""
        self.by_index.update(reading.norms)

    def applied(self, reading: GradNormSample) -> None:
        """Store the norms of a reading of applied gradients, and its step."""
        self.by_index.update(reading.norms)
        self._read_at |= dict.fromkeys([index for index, _ in reading.norms], reading.step)

    def forget(self, index: int) -> None:
        """Remove the norm of a parameter that no longer has a gradient."""
        self.by_index.pop(index, None)

    def forget_frozen(self) -> None:
        """Remove the norms of parameters that are frozen now and belong to no optimizer: they are from an earlier stage.

        If an optimizer owns the parameter, its next step shows whether there is a gradient.
        """
        references = self._view.tree.parameter_refs
        frozen = {
            id(tensor): index
            for index in self.by_index
            if index >= 0 and (tensor := references[index]()) is not None and not tensor.requires_grad
        }
        if frozen:
            owned = {
                id(tensor)
                for optimizer in self._view.live_optimizers()
                for group in optimizer.param_groups
                for tensor in group["params"]
            }
            for index in [index for key, index in frozen.items() if key not in owned]:
                del self.by_index[index]

    def rows(self) -> tuple[float | None, ...]:
        """Return the norms of all parameters. Parameters of other optimizers keep the norm of their own last step."""
        return tuple(map(self.by_index.get, range(len(self._view.tree.parameters))))

    def steps(self, step: int) -> tuple[int | None, ...] | None:
        """Return the step of each norm in `rows`; None if all belong to `step`."""
        if set(map(self._read_at.get, self.by_index)) <= {step}:
            return None
        indices = range(len(self._view.tree.parameters))
        return tuple([self._read_at.get(index) if index in self.by_index else None for index in indices])
