"""Emit the state and `requires_grad` of each parameter, and answer questions about them. Training thread."""

from __future__ import annotations

from collections import Counter

from gradtui.probe.model import IndexMapping
from gradtui.probe.runtime import ProbeContext
from gradtui.probe.sampling.parameter_states import Classified
from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import ParameterState

_TO_AND_FRO = 5
"""A parameter that the script was found to freeze or unfreeze this often trains in turns, as the two halves of a GAN do, or is
switched within each step. Each change counts twice: when it is noticed, and when it is emitted."""


class ParameterStateReporter:
    """Emits the states of the parameters when they have changed."""

    def __init__(self, context: ProbeContext) -> None:
        self.now = Classified()
        """The states emitted last."""
        self.switched: Counter[int] = Counter()
        """Parameter index -> how often the script itself was found to freeze or unfreeze it during training, if ever."""
        self._emit, self._clock, self._view = context.emit, context.clock, context.models

    def tree_changed(self, moved: IndexMapping) -> None:
        """Move the states to the new parameter indexes. The states of parameters that were listed before stay known."""
        self.now = Classified(*(moved.letters(known) for known in self.now))
        self.switched = Counter(moved.of_parameters(self.switched))

    def toggled(self, step: int) -> None:
        """Emit which parameters are trainable after a toggle. The states of those that changed become unknown."""
        unknown = "-" * len(self._view.tree.parameters)
        letters, flags = list(self.now.letters or unknown), list(self.now.trainable or unknown)
        reasons = list(self.now.reasons or unknown)
        for index, tensor in self._view.tree.live_parameters():
            flag = "1" if tensor.requires_grad else "0"
            if flags[index] != flag:
                letters[index], flags[index], reasons[index] = "-", flag, "-"
        self._emit_classified(Classified("".join(letters), "".join(flags), "".join(reasons)), step)

    def outdated(self) -> list[int]:
        """Return the parameters that the script has frozen or unfrozen since the last event, except those that take turns."""
        found = []
        # No function call per parameter: this runs five times a second.
        for index, (reference, reported) in enumerate(zip(self._view.tree.parameter_refs, self.now.trainable)):
            tensor = reference()
            now = reported if tensor is None else "1" if tensor.requires_grad else "0"
            if reported != now and reported != "-" and self.switched[index] < _TO_AND_FRO:
                found.append(index)
        return found

    def classified(self, found: Classified, step: int) -> None:
        """Store and emit the states found in a sampled step."""
        known = zip(self.now.trainable, found.trainable)
        self.switched.update(index for index, (before, now) in enumerate(known) if {before, now} == {"0", "1"})
        self._emit_classified(found, step)

    def unreached(self) -> frozenset[int]:
        """Return the parameters that the last sampled backward did not reach."""
        return self._with(ParameterState.UNREACHED)

    def flowing(self) -> frozenset[int]:
        """Return the frozen parameters with a gradient passing through their modules. It reaches them once they train."""
        return self._with(ParameterState.FLOW_THROUGH)

    def _with(self, state: ParameterState) -> frozenset[int]:
        wanted = state.value
        return frozenset([index for index, letter in enumerate(self.now.letters) if letter == wanted])

    def _emit_classified(self, found: Classified, step: int) -> None:
        if found != self.now:
            self.now = found
            self._emit(ParametersClassified(self._clock.at(), step, *found, listing=self._view.tree.listing))
