"""The newest gradient norm of each listed parameter, and the step that it is of. Training thread."""

from __future__ import annotations

from gradtui.probe.gradients.grad_norms import GradNormSample
from gradtui.probe.model import IndexMapping, ModelRegistry


class LatestNorms:
    """Norms by place of the parameter. On a device they are one reading old."""

    def __init__(self, view: ModelRegistry) -> None:
        self.by_place: dict[int, float] = {}
        """Place of a parameter -> its norm, as its optimizer applied it last; -1 stands for those of no listed model."""
        self._read_at: dict[int, int] = {}
        """Place of a parameter -> the step that its norm is of."""
        self._view = view

    def tree_changed(self, moved: IndexMapping) -> None:
        """Parameters have other places now; the norms of those that were listed before stay known."""
        self.by_place = moved.of_parameters(self.by_place)
        self._read_at = moved.of_parameters(self._read_at)

    def update(self, reading: GradNormSample) -> None:
        """Take the norms of a reading."""
        self.by_place.update(reading.norms)

    def applied(self, reading: GradNormSample) -> None:
        """Likewise, of gradients as they were applied."""
        self.by_place.update(reading.norms)
        self._read_at |= dict.fromkeys([place for place, _ in reading.norms], reading.step)

    def forget(self, place: int) -> None:
        """The parameter has no gradient any longer."""
        self.by_place.pop(place, None)

    def forget_frozen(self) -> None:
        """Drop the norms of parameters that are frozen now and belong to no optimizer: they are from an earlier stage.

        Where an optimizer owns the parameter, its next step shows whether there is a gradient.
        """
        references = self._view.tree.parameter_refs
        frozen = {
            id(tensor): place
            for place in self.by_place
            if place >= 0 and (tensor := references[place]()) is not None and not tensor.requires_grad
        }
        if frozen:
            owned = {
                id(tensor)
                for optimizer in self._view.live_optimizers()
                for group in optimizer.param_groups
                for tensor in group["params"]
            }
            for place in [place for key, place in frozen.items() if key not in owned]:
                del self.by_place[place]

    def rows(self) -> tuple[float | None, ...]:
        """The norms of all parameters. Those of other optimizers keep what their own last step had."""
        return tuple(map(self.by_place.get, range(len(self._view.tree.parameters))))

    def steps(self, step: int) -> tuple[int | None, ...] | None:
        """The steps that the rows are of; None where all are of `step`."""
        if set(map(self._read_at.get, self.by_place)) <= {step}:
            return None
        places = range(len(self._view.tree.parameters))
        return tuple([self._read_at.get(place) if place in self.by_place else None for place in places])
