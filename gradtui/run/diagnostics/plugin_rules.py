"""The rules of plugins. Each is checked when it is loaded, and again whenever it matches: it is code of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from itertools import islice
from time import perf_counter
from typing import Any

from gradtui.protocol.call_order import CallSite
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.system import plugins
from gradtui.system.printable import printable

_ID = re.compile(r"(?!GT)[A-Z]{2,8}[0-9]{2,4}")
_MATCHES = 50
_MOST_S, _MOST_TIMES = 0.25, 3
"""Seconds that one look at a run may take, and how often a rule may exceed them, or fail."""


class PluginRuleError(Exception):
    """A rule of a plugin has failed, or has said something that is no match. The message is one line."""


@cache
def plugin_rules() -> tuple[Rule, ...]:
    """Return the rules of the plugins that are loaded, in the order of their ids."""
    found: dict[str, Rule] = {}
    for plugin in plugins.plugins(plugins.RULES):
        part, objections = f"plugin {plugin.name}", []
        try:
            given = tuple(islice(plugin.module.RULES, 1000))
            for rule in given:
                if (objection := _objection(rule, found)) is not None:
                    objections.append(objection)
                else:
                    found[rule.id] = _guarded(rule)
            if objections:
                plugins.note(part, "; ".join(objections[:3]))
        except plugins.ERRORS as error:
            plugins.note(part, error)
    return tuple(found[id_] for id_ in sorted(found))


def _objection(rule: Any, known: Mapping[str, Rule]) -> str | None:
    """Return why an object cannot be used as a rule; None if it can."""
    if type(rule) is not Rule:
        return f"RULES has an object of type {type(rule).__name__}, which is no Rule"
    if type(rule.id) is not str or _ID.fullmatch(rule.id) is None:
        return f"{str(rule.id)[:20]!r} is no id of a plugin's rule: write two to eight capital letters, not GT, and a number"
    texts = (rule.title, rule.why, rule.remedy)
    if not all(type(each) is str and each for each in texts) or not isinstance(rule.level, Level):
        return f"rule {rule.id} has no level, title, reason or remedy"
    if not callable(rule.check) or not callable(rule.needs) or type(rule.samples) is not int or rule.samples < 1:
        return f"rule {rule.id} cannot be called, or has no number of samples"
    if not isinstance(rule.explains, frozenset):
        return f"explains of rule {rule.id} is no frozenset"
    return f"rule {rule.id} is there already" if rule.id in known else None


def _guarded(rule: Rule) -> Rule:
    """Return a rule whose functions raise nothing but `PluginRuleError`, and are not called any more if they fail or are slow.

    Its texts are printed as they are by `gradtui rules` and `gradtui explain`.
    """
    failures: list[str] = []

    def failed(problem: str) -> None:
        failures.append(problem if len(failures) < _MOST_TIMES - 1 else f"{problem}; it is switched off")

    def call(function: Callable[[RunState], Any], state: RunState, otherwise: Any) -> Any:
        if len(failures) >= _MOST_TIMES:
            return otherwise
        began = perf_counter()
        try:
            answer = function(state)
        except plugins.ERRORS as error:
            failed(f"{type(error).__name__}: {plugins.text_of(error)}")
            raise PluginRuleError(failures[-1]) from None
        if (seconds := perf_counter() - began) > _MOST_S:
            failed(f"it took {seconds:.1f} s")
            if len(failures) >= _MOST_TIMES:
                raise PluginRuleError(failures[-1])
        return answer

    def check(state: RunState) -> Iterable[Match]:
        found: list[Match] = call(
            lambda state: [_checked(each) for each in islice(rule.check(state), _MATCHES)], state, []
        )
        return found

    def needs(state: RunState) -> str | None:
        lacked = call(rule.needs, state, None)
        return lacked if type(lacked) is str else None

    title, why, remedy = map(printable, (rule.title, rule.why, rule.remedy))
    return replace(rule, title=title, why=why, remedy=remedy, check=check, needs=needs)


def _checked(match: Any) -> Match:
    """Return a match with the types that it must have. Raises `TypeError`."""
    if type(match) is not Match:
        raise TypeError(f"an object of type {type(match).__name__} is no Match")
    wrong = [each.name for each in fields(match) if not _FITS[each.name](getattr(match, each.name))]
    if wrong:
        raise TypeError(f"{' and '.join(wrong)} of a match has another type")
    return match


def _is_number(value: Any) -> bool:
    return value is None or type(value) is int


def _is_text(value: Any) -> bool:
    return value is None or type(value) is str


def _are_texts(values: Any) -> bool:
    return all(type(each) is str for each in values)


_FITS: dict[str, Callable[[Any], bool]] = {
    "message": lambda value: type(value) is str and bool(value),
    "evidence": lambda value: (
        type(value) is dict
        and _are_texts(value)
        and all(each is None or type(each) in (str, int, float, bool) for each in value.values())
    ),
    "paths": lambda value: type(value) is tuple and _are_texts(value),
    "first_step": _is_number,
    "is_exact": lambda value: type(value) is bool,
    "level": lambda value: value is None or isinstance(value, Level),
    "remedy": _is_text,
    "command": _is_text,
    "call": _is_text,
    "site": lambda value: value is None or type(value) is CallSite,
    "key": lambda value: type(value) is str,
    "optimizer": _is_number,
    "explains": lambda value: value is None or (type(value) is frozenset and _are_texts(value)),
}
"""What each field of a match may be."""
