"""The letter and the flag of each parameter as they were told last, and what follows from them. Training thread."""

from __future__ import annotations

from collections.abc import Callable

from gradtui.probe.models_in_view import ModelsInView
from gradtui.probe.run_clock import RunClock
from gradtui.protocol.events import Event, ParametersClassified
from gradtui.protocol.vocabulary import ParameterState


class ToldStates:
    """Tells the states of the parameters when they have changed."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, view: ModelsInView) -> None:
        self.letters = ""
        """A letter of `ParameterState` per parameter; empty where nothing is known."""
        self.switched: set[int] = set()
        """Parameters that the script itself was seen to freeze or unfreeze while it trains."""
        self._trainable = ""
        self._emit = emit
        self._clock = clock
        self._view = view

    def tree_changed(self) -> None:
        """Parameters have other places now."""
        self.letters = self._trainable = ""
        self.switched.clear()

    def toggled(self, step: int) -> None:
        """A toggle was applied: tell who is trainable now; of those that changed nothing more is known."""
        letters = list(self.letters or "-" * len(self._view.tree.parameters))
        flags = ["-"] * len(letters)
        for index, tensor in self._view.tree.live_parameters():
            flags[index] = "1" if tensor.requires_grad else "0"
            if self._trainable[index : index + 1] != flags[index]:
                letters[index] = "-"
        self._tell("".join(letters), "".join(flags), step)

    def classified(self, letters: str, trainable: str, step: int) -> None:
        """A step was examined."""
        known = zip(self._trainable, trainable)
        self.switched |= {place for place, (before, now) in enumerate(known) if {before, now} == {"0", "1"}}
        self._tell(letters, trainable, step)

    def unreached(self) -> frozenset[int]:
        """The parameters that the backward examined last did not reach."""
        return self._with(ParameterState.UNREACHED)

    def flowing(self) -> frozenset[int]:
        """The frozen parameters through whose modules the gradient was seen to pass: it reaches them once they train."""
        return self._with(ParameterState.FLOW_THROUGH)

    def _with(self, state: ParameterState) -> frozenset[int]:
        return frozenset(i for i, letter in enumerate(self.letters) if letter == state.value)

    def _tell(self, letters: str, trainable: str, step: int) -> None:
        if (letters, trainable) != (self.letters, self._trainable):
            self.letters, self._trainable = letters, trainable
            self._emit(ParametersClassified(self._clock.at(), step, letters, trainable))
