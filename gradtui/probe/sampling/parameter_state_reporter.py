"""The letter and the flag of each parameter as they were told last, and what follows from them. Training thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from gradtui.probe.model import IndexMapping, ModelRegistry
from gradtui.probe.runtime import RunClock
from gradtui.probe.sampling.parameter_states import Classified
from gradtui.protocol.events import Event, ParametersClassified
from gradtui.protocol.vocabulary import ParameterState

_TO_AND_FRO = 5
"""What was so often seen to be frozen or unfrozen by the script (twice for each time: when it is noticed, and when it is told)
takes turns, as the two halves of a GAN do, or is switched within each step."""


class ParameterStateReporter:
    """Tells the states of the parameters when they have changed."""

    def __init__(self, emit: Callable[[Event], None], clock: RunClock, view: ModelRegistry) -> None:
        self.now = Classified()
        """What is known of all parameters."""
        self.switched: Counter[int] = Counter()
        """How often the script itself was seen to freeze or unfreeze a parameter while it trains; only those where it was."""
        self._emit = emit
        self._clock = clock
        self._view = view

    def tree_changed(self, moved: IndexMapping) -> None:
        """Parameters have other places now; the states of those that were listed before stay known."""
        self.now = Classified(*(moved.letters(known) for known in self.now))
        self.switched = Counter(moved.of_parameters(self.switched))

    def toggled(self, step: int) -> None:
        """A toggle was applied: tell who is trainable now; of those that changed nothing more is known."""
        unknown = "-" * len(self._view.tree.parameters)
        letters, flags = list(self.now.letters or unknown), list(self.now.trainable or unknown)
        reasons = list(self.now.reasons or unknown)
        for index, tensor in self._view.tree.live_parameters():
            flag = "1" if tensor.requires_grad else "0"
            if flags[index] != flag:
                letters[index], flags[index], reasons[index] = "-", flag, "-"
        self._tell(Classified("".join(letters), "".join(flags), "".join(reasons)), step)

    def outdated(self) -> list[int]:
        """The parameters that the script has frozen or unfrozen since they were told, but for what takes turns anyway."""
        found = []
        # Without a call of ours for each: it is asked five times a second.
        for index, (reference, told) in enumerate(zip(self._view.tree.parameter_refs, self.now.trainable)):
            tensor = reference()
            now = told if tensor is None else "1" if tensor.requires_grad else "0"
            if told != now and told != "-" and self.switched[index] < _TO_AND_FRO:
                found.append(index)
        return found

    def classified(self, found: Classified, step: int) -> None:
        """A step was examined."""
        known = zip(self.now.trainable, found.trainable)
        self.switched.update(place for place, (before, now) in enumerate(known) if {before, now} == {"0", "1"})
        self._tell(found, step)

    def unreached(self) -> frozenset[int]:
        """The parameters that the backward examined last did not reach."""
        return self._with(ParameterState.UNREACHED)

    def flowing(self) -> frozenset[int]:
        """The frozen parameters through whose modules the gradient was seen to pass: it reaches them once they train."""
        return self._with(ParameterState.FLOW_THROUGH)

    def _with(self, state: ParameterState) -> frozenset[int]:
        wanted = state.value
        return frozenset([place for place, letter in enumerate(self.now.letters) if letter == wanted])

    def _tell(self, found: Classified, step: int) -> None:
        if found != self.now:
            self.now = found
            self._emit(ParametersClassified(self._clock.at(), step, *found, listing=self._view.tree.listing))
