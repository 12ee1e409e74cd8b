"""Decide the state of each parameter from the facts of a sampled step, and emit it. Training thread."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from torch.optim import Optimizer

from gradtui.named_tuple import NamedTuple
from gradtui.probe.model import IndexMapping
from gradtui.probe.steps import ProbeContext
from gradtui.protocol.events import ParametersClassified
from gradtui.protocol.vocabulary import ParameterState

_TO_AND_FRO = 5
"""A parameter that the script was found to freeze or unfreeze this often trains in turns, as the two halves of a GAN do, or is
switched within each step. Each change counts twice: when it is noticed, and when it is emitted."""


class Classified(NamedTuple):
    """The states of all parameters, one letter for each; empty strings where nothing is known."""

    letters: str = ""
    """Letters of `ParameterState`."""
    trainable: str = ""
    """"1" or "0" for `requires_grad`."""
    reasons: str = ""
    """Letters of `StateReason`."""


@lru_cache(maxsize=256)
def classify(
    before: str,
    trainable: bool,
    in_optimizer: bool,
    has_gradient: bool,
    norm: float | None,
    moved: bool,
    passing: bool | None,
    skipped: bool,
) -> str:
    """Return the letter of the state that these facts about a parameter imply after a step.

    Args:
        before: the letter of the state so far, which is returned where the facts do not decide it.
        trainable: it requires a gradient.
        in_optimizer: an optimizer owns it.
        has_gradient: it has a gradient.
        norm: the norm of that gradient; None if it was not measured.
        moved: its values have changed since it was first sampled as frozen.
        passing: a gradient passes through its module to something outside it; None where that is unknown.
        skipped: the GradScaler skipped this step.
    """
    if not trainable:
        if moved:
            state = ParameterState.MOVED
        elif passing is not None:
            state = ParameterState.FLOW_THROUGH if passing else ParameterState.CUT
        else:
            was_frozen = before in (ParameterState.FLOW_THROUGH.value, ParameterState.CUT.value)
            return before if was_frozen else ParameterState.UNKNOWN.value
    elif norm is not None and not math.isfinite(norm):
        state = ParameterState.SKIPPED if skipped else ParameterState.NOT_FINITE
    elif not in_optimizer:
        state = ParameterState.ORPHAN
    elif skipped:
        state = ParameterState.SKIPPED
    elif not has_gradient:
        state = ParameterState.UNREACHED
    elif norm is None:
        return before
    else:
        state = ParameterState.TRAINED if norm else ParameterState.ZERO
    return state.value


class ParameterStateReporter:
    """Emits the states of the parameters when they have changed."""

    def __init__(self, context: ProbeContext) -> None:
        self.now = Classified()
        """The states emitted last."""
        self.switched: Counter[int] = Counter()
        """Parameter index -> how often the script itself was found to freeze or unfreeze it during training, if ever."""
        self._counter, self._ended = context.counter, -1
        """The number of the step, among those that have ended, in which the states were found last."""
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
        self._ended = self._counter.ended
        known = zip(self.now.trainable, found.trainable)
        self.switched.update(index for index, (before, now) in enumerate(known) if {before, now} == {"0", "1"})
        self._emit_classified(found, step)

    def was_skipped(self, optimizer: Optimizer, ended: int) -> None:
        """Correct the states found in a step, if they are the newest: a device reported later that it was skipped.

        `ended` is the number of the step among those that have ended.
        """
        if ended != self._ended:
            return
        tree, letters = self._view.tree, list(self.now.letters)
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                index = tree.owns(tensor)
                if index is not None and index < len(letters) and self.now.trainable[index] == "1":
                    letters[index] = ParameterState.SKIPPED.value
        self._emit_classified(self.now._replace(letters="".join(letters)), self._counter.steps)

    def indices_of(self, state: ParameterState) -> frozenset[int]:
        """Return the parameters that had this state in the last event."""
        wanted = state.value
        return frozenset([index for index, letter in enumerate(self.now.letters) if letter == wanted])

    def _emit_classified(self, found: Classified, step: int) -> None:
        if found != self.now:
            self.now = found
            self._emit(ParametersClassified(self._clock.at(), step, *found, listing=self._view.tree.listing))
