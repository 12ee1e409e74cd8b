"""Collect what the script logs, and emit it several times a second. Runs on the training thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gradtui.probe.metrics.logging_calls import Arguments, LoggingCall, Pair
from gradtui.probe.metrics.values import Value, value_of
from gradtui.probe.runtime import ByIdentity
from gradtui.probe.steps import Epochs, HookEventBuffer, PhaseTracker, ProbeContext
from gradtui.protocol.events import MetricPoints, MetricsLogged
from gradtui.protocol.metrics import MAX_METRICS, MAX_NAME, PROGRESS_BAR
from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.parts.metrics import is_of_either, is_of_training
from gradtui.system.printable import printable

_WITHIN = frozenset((Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER))
"""The phases of a step that has begun and not ended."""
_FLUSH_NS = 200_000_000
_MAX_WAITING = 4096
"""Calls whose values wait to be emitted, for a device for example; of more the oldest are dropped."""
_MAX_OMITTED = 1024


_Logged = tuple[str, int, bool, list[str], list[Value]]
"""The source of a call, the step, whether it was made in an evaluation, and its names and values. A tuple takes a tenth of the
time of a dataclass, which counts where every step logs."""


class LoggedMetrics:
    """The values that wait to be emitted, and the names of all metrics so far."""

    def __init__(self, context: ProbeContext, buffer: HookEventBuffer, phases: PhaseTracker, epochs: Epochs) -> None:
        self._emit, self._clock, self._counter = context.emit, context.clock, context.counter
        self._buffer, self._phases, self._epochs = buffer, phases, epochs
        self.is_logging = False
        """Whether a call is running: what it calls in turn logs the same values."""
        self.evaluated_at = -1
        """The number of steps before the newest evaluation."""
        self._names: dict[str, str] = {}
        """By name as it was given: without control characters and not too long."""
        self._names_aside: dict[str, str] = {}
        """The same of writers and progress bars that evaluations have of their own."""
        self._aside: ByIdentity[Any, bool] = ByIdentity()
        """Whether such an object has logged in an evaluation first."""
        self._omitted: set[str] = set()
        self._dropped = 0
        self.evaluated: Callable[[list[str], list[Value], int], None] | None = None
        """Called with the names and values that are logged after an evaluation, and with the number of steps."""
        self.waiting: deque[_Logged] = deque()
        """What has not been emitted."""
        self._flush_at = 0
        self._passes = 0.0

    def take(self, call: LoggingCall, arguments: Arguments, named: Mapping[str, Any]) -> None:
        """Take the values of a call that has returned."""
        steps, is_within = self._position()
        if call.within_steps and not is_within:
            return
        names: list[str] = []
        values: list[Value] = []
        in_evaluation = not is_within and self.evaluated_at == steps
        pairs, known = call.read(arguments, named), self._names
        if call.one_of_each:
            pairs = [*pairs]
            known = self._names_of(arguments[0], pairs, in_evaluation=in_evaluation)
        for given, value in pairs:
            number = value if type(value) is float else value_of(value, reads_text=call.reads_text)
            if number is None:
                continue
            name = (known.get(given) if type(given) is str else None) or self._name(given, known)
            if name is not None:
                names.append(name)
                values.append(number)
        if not names:
            return
        self.waiting.append((call.source, steps + is_within, in_evaluation, names, values))
        # A progress bar shows means of what is not over.
        if in_evaluation and self.evaluated is not None and call.source != PROGRESS_BAR:
            self.evaluated(names, values, steps)
        if len(self.waiting) > _MAX_WAITING:
            self._dropped += len(self.waiting.popleft()[-1])
        now = self._clock.now()
        if now >= self._flush_at:
            self.flush()
            self._flush_at = now + _FLUSH_NS

    def _position(self) -> tuple[int, bool]:
        """Return the number of steps that have ended, and whether the next one has begun."""
        buffer = self._buffer
        is_within = not buffer.between if buffer.thread else self._phases.phase in _WITHIN
        return self._counter.steps + buffer.steps, is_within

    def _names_of(self, logger: Any, pairs: Iterable[Pair], *, in_evaluation: bool) -> dict[str, str]:
        is_aside = self._aside.get(logger)
        if is_aside is None:
            # A bar over the epochs shows the means of both after the validation.
            says_training = any(is_of_training(name) for name, _ in pairs if type(name) is str)
            self._aside.set(logger, is_aside := in_evaluation and not says_training)
        return self._names_aside if is_aside else self._names

    def _name(self, given: Any, known: dict[str, str]) -> str | None:
        """Return the name of a new metric; None if it is no text, or there are too many."""
        if not isinstance(given, str):
            return None
        # A subclass of `str` may have methods of the script.
        raw = str.__str__(given)
        short = printable(raw[: 2 * MAX_NAME].encode(errors="replace").decode()).strip()
        name = short if len(short) <= MAX_NAME else f"{short[: MAX_NAME - 1]}…"
        if name and len(self._names) + len(self._names_aside) < MAX_METRICS:
            is_aside = known is self._names_aside
            if raw in (self._names if is_aside else self._names_aside) and is_of_either(name):
                # Both would be one curve. The metric that came first keeps its name.
                name = f"{name} ({'evaluation' if is_aside else 'training'})"
            known[raw] = name
            return name
        if name and len(self._omitted) < _MAX_OMITTED:
            self._omitted.add(name)
        return None

    def flush(self, *, at_end: bool = False) -> None:
        """Emit the values that have arrived, in their order. At the end of a run it may wait for a device."""
        if not self.waiting:
            return
        columns: dict[tuple[str, str], tuple[bool, list[int], list[float]]] = {}
        newest = 0
        for source, step, in_evaluation, names, values in self._arrived(at_end=at_end):
            newest = max(newest, step)
            for name, value in zip(names, values):
                # The first one says whether they are of an evaluation: the values of a metric stay in their order.
                _, steps, numbers = columns.setdefault((name, source), (in_evaluation, [], []))
                steps.append(step)
                numbers.append(value if isinstance(value, float) else value.value)
        if columns:
            points = tuple(
                MetricPoints(*key, in_evaluation, tuple(steps), tuple(numbers))
                for key, (in_evaluation, steps, numbers) in columns.items()
            )
            self._emit(
                MetricsLogged(self._clock.at(), newest, points, self._new_passes(), len(self._omitted), self._dropped)
            )

    def _arrived(self, *, at_end: bool) -> Iterator[_Logged]:
        while self.waiting:
            under_way = [value for value in self.waiting[0][-1] if not isinstance(value, float)]
            if not at_end and not all(value.is_there for value in under_way):
                return
            for value in under_way:
                value.wait()
            yield self.waiting.popleft()

    def _new_passes(self) -> tuple[tuple[int, float], ...]:
        steps = self._position()[0]
        passes = self._epochs.passes_at(steps)
        if passes is None:
            return ()
        self._passes = max(self._passes, passes)
        return ((steps, self._passes),)
