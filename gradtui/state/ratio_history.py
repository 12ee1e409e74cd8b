"""How far steps moved each parameter: update-to-weight ratios over steps, bounded however many parameters there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gradtui.state.series import Series

_NOTHING = Series()


class RatioHistory:
    """A curve for each measured parameter. If there is no room, the curve that was updated longest ago is removed.

    Args:
        points: maximum number of points of all curves together.
        each: maximum number of points of one curve.
    """

    def __init__(self, points: int = 200_000, each: int = 512) -> None:
        self._room, self._each = points, each
        self._curves: dict[int, Series] = {}
        """By place of the parameter, the newest last."""
        self._points = 0

    def append(self, parameter: int, step: int, ratio: float) -> None:
        """Add the update ratio of a parameter at a step."""
        curve = self._curves.pop(parameter, None) or Series(self._each)
        before = len(curve)
        curve.append(step, ratio)
        self._curves[parameter] = curve
        self._points += len(curve) - before
        while self._points > self._room and len(self._curves) > 1:
            self._points -= len(self._curves.pop(next(iter(self._curves))))

    def of(self, parameter: int) -> Series:
        """Return the curve of one parameter, empty if it was never measured. Do not modify it."""
        return self._curves.get(parameter, _NOTHING)

    @property
    def parameters(self) -> Iterable[int]:
        """Indexes of the parameters that have a curve."""
        return self._curves.keys()

    def relisted(self, indices: Mapping[int, int]) -> RatioHistory:
        """The same curves by new places of the parameters; those that have none are left out."""
        history = RatioHistory(self._room, self._each)
        history._curves = {indices[index]: curve for index, curve in self._curves.items() if index in indices}
        history._points = sum(len(curve) for curve in history._curves.values())
        return history

    def __len__(self) -> int:
        return self._points
