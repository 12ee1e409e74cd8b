"""Turn the matches of rules into findings with a history. Any thread, but one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from gradtui.protocol.events import (
    CallOrderMeasured,
    DeviceSampled,
    Event,
    GradientFlowMeasured,
    NonFiniteFound,
    OutOfMemory,
    RankEvent,
    RunEnded,
    RunStarted,
    TorchImported,
)
from gradtui.run.diagnostics.ignore_comments import is_ignored
from gradtui.run.diagnostics.plugin_rules import PluginRuleError, plugin_rules
from gradtui.run.diagnostics.registry import own_rules
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Finding, Status
from gradtui.run.state.run_state import RunState
from gradtui.run.text.findings import finding_text
from gradtui.system import plugins

_OCCASIONS = (CallOrderMeasured, GradientFlowMeasured, NonFiniteFound, OutOfMemory)
"""The events after which the rules are run."""
_OF_ANY_RUN = (RunStarted, TorchImported, DeviceSampled, RunEnded)
"""The events of a run that no probe watches: no rule matches on them alone."""
_SHARE = 0.01
"""Share of the elapsed time that the rules may take, besides `_START_S`."""
_START_S = 0.5
"""Seconds that the rules may take at the start of a run, when every sampled step counts."""

Key = tuple[str, str]


class FindingTracker:
    """Runs rules over a state, and keeps `RunState.findings` up to date."""

    def __init__(self, rules: Sequence[Rule] | None = None) -> None:
        """Create a tracker of these rules; for None of those that are on by default, which are imported when they are run."""
        self._given = tuple(rules) if rules is not None else None
        self._has_seen = False
        """Whether an event has come that a rule may match."""
        # Who has selected rules had to load the plugins for it.
        self._awaits_plugins = not plugins.is_loaded(plugins.RULES)
        self._began = perf_counter()
        self._spent_s = 0.0
        self._compared = 0
        """The changes of what differs between ranks (`JobState.divergence_changes`) that the rules have seen."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that run."""
        if self._given is None:
            self._given = tuple(rule for rule in own_rules() if rule.is_default)
        return self._given

    def on_event(self, state: RunState, event: Event) -> bool:
        """Run the rules if this event, which has been applied to the state, may change what they say. Return whether it did."""
        allowed_s = _START_S + _SHARE * (perf_counter() - self._began)
        is_new = state.job is not None and state.job.divergence_changes != self._compared
        may_run = (is_new or isinstance(event, _OCCASIONS)) and self._spent_s <= allowed_s
        is_end = isinstance(event.event if isinstance(event, RankEvent) else event, RunEnded)
        self._has_seen = self._has_seen or not isinstance(event, _OF_ANY_RUN)
        if (is_end and self._has_seen) or may_run:
            self.run(state, event.step)
            return True
        return False

    def finish(self, state: RunState) -> None:
        """Run the rules a last time, if there was anything that they may match."""
        if self._has_seen:
            self.run(state)

    def run(self, state: RunState, step: int = 0) -> None:
        """Run all rules, after an event of this step. `RunState.step` is that of the newest `Progress`."""
        began, step = perf_counter(), max(step, state.step)
        self._add_plugins(state)
        matches = self._matches(state)
        matched = set(matches)
        explained = self._fold(matches)
        known = {(finding.rule, finding.key): finding for finding in state.findings}
        found = [
            _found(state, step, known.get(key), rule, match, explained.get(key, ()))
            for key, (rule, match) in matches.items()
        ]
        found = [each for each in found if not is_ignored(each)]
        # Where the models that trained are gone, the rules have nothing to look at, and what they found stays as it was.
        are_gone = state.trained_tree is not None
        # One that was never sure, and is not so any more, is not history either.
        past = [
            each for key, each in known.items() if key not in matched and (each.status is Status.CONFIRMED or are_gone)
        ]
        for each in found:
            former = known.get((each.rule, each.key))
            is_new = former is None or former.status is not Status.CONFIRMED or not former.is_open
            if is_new and each.status is Status.CONFIRMED:
                state.note(Event(state.seconds, step), "finding", finding_text(each))
        # Only a later sample shows that something is mended: an optimizer that ends with the run mends nothing.
        mended = [each.is_open and not are_gone and _sample(state) != each.last_sample for each in past]
        cleared = [replace(each, cleared_step=step) if now else each for each, now in zip(past, mended)]
        state.findings = cleared + found
        self._spent_s += perf_counter() - began
        self._compared = state.job.divergence_changes if state.job is not None else 0

    def _add_plugins(self, state: RunState) -> None:
        """Add the rules of plugins, once the training thread has loaded them, and report what is wrong with them."""
        if self._awaits_plugins and plugins.is_loaded(plugins.RULES):
            self._awaits_plugins = False
            self._given = self.rules + tuple(rule for rule in plugin_rules() if rule.is_default)
        for part, problem in plugins.problems().items():
            known = state.problems.get(part)
            if known is None or known.error != problem:
                _report(state, part, problem)

    def without_chance(self, state: RunState) -> dict[str, list[str]]:
        """Return the ids of the rules that had no chance to match, by what the run lacked."""
        found: dict[str, list[str]] = {}
        matched = {finding.rule for finding in state.findings}
        for rule in self.rules:
            try:
                lacked = rule.needs(state) if rule.id not in matched else None
            except Exception as error:  # noqa: BLE001 - as in `_matches`
                _report(state, f"rule {rule.id}", error)
                continue
            if lacked is not None:
                found.setdefault(lacked, []).append(rule.id)
        return found

    def _matches(self, state: RunState) -> dict[Key, tuple[Rule, Match]]:
        found: dict[Key, tuple[Rule, Match]] = {}
        for rule in self.rules:
            try:
                for match in rule.check(state):
                    found[rule.id, match.key] = rule, match
            except Exception as error:  # noqa: BLE001 - a rule that fails must not cost the others
                _report(state, f"rule {rule.id}", error)
        return found

    @staticmethod
    def _fold(matches: dict[Key, tuple[Rule, Match]]) -> dict[Key, tuple[str, ...]]:
        """Remove the matches that follow from others; return the ids of the rules that each remaining one explains.

        What follows from a match that was removed follows from its cause.
        """
        causes: dict[Key, Key] = {}

        def first_cause(key: Key) -> Key:
            while key in causes:
                key = causes[key]
            return key

        for key, (rule, match) in matches.items():
            explains = rule.explains if match.explains is None else match.explains
            for other, (symptom, seen) in matches.items():
                # Two rules that explain each other must not remove each other.
                is_new = other not in causes and first_cause(key) != other
                if symptom.id in explains and is_new and _concern_the_same(match, seen):
                    causes[other] = key
        explained: dict[Key, set[str]] = {}
        for key in causes:
            explained.setdefault(first_cause(key), set()).add(matches[key][0].id)
        for key in causes:
            del matches[key]
        return {key: tuple(sorted(ids)) for key, ids in explained.items()}


def _report(state: RunState, part: str, problem: Exception | str) -> None:
    """Count a failure of a rule or a plugin; the first one of each is a line for the user."""
    is_told = isinstance(problem, (str, PluginRuleError))
    text = str(problem) if is_told else f"{type(problem).__name__}: {problem}"
    if part not in state.problems:
        state.note(Event(state.seconds, state.step), "probe", f"{part}: {text}")
    state.note_problem(part, text)


def _found(
    state: RunState, step: int, known: Finding | None, rule: Rule, match: Match, explains: tuple[str, ...]
) -> Finding:
    sample = _sample(state)
    samples = 1 if known is None else known.samples + (sample != known.last_sample)
    was_confirmed = known is not None and known.status is Status.CONFIRMED
    is_confirmed = was_confirmed or match.is_exact or samples >= rule.samples
    first = step if match.first_step is None else match.first_step
    sites = state.calls.sites if state.calls is not None else ()
    site = match.site or next((each for each in sites if each.call == match.call), None)
    return Finding(
        rule.id,
        match.level or rule.level,
        Status.CONFIRMED if is_confirmed else Status.SUSPECTED,
        match.message,
        rule.why,
        match.remedy or rule.remedy,
        min(first, known.first_step) if known is not None else first,
        step,
        None,
        match.paths,
        dict(match.evidence),
        match.command,
        explains,
        site.file if site is not None else None,
        site.line if site is not None else None,
        samples,
        sample,
        match.key,
    )


def _sample(state: RunState) -> int:
    """Return a number that changes with each sampled step, and with each change of what differs between ranks."""
    return state.tree.measured + (state.job.divergence_changes if state.job is not None else 0)


def _concern_the_same(match: Match, other: Match) -> bool:
    """Return whether two matches concern the same parameters and the same optimizer.

    A match without paths concerns all parameters, and one without an optimizer all of them.
    """
    if match.optimizer is not None and other.optimizer is not None and match.optimizer != other.optimizer:
        return False
    return not match.paths or not other.paths or not set(match.paths).isdisjoint(other.paths)
