"""Select the rules that run, by id or by the beginning of ids (`GT2`). Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from gradtui.named_tuple import NamedTuple
from gradtui.protocol.codec import BadEntry
from gradtui.run.diagnostics.registry import all_rules, own_rules
from gradtui.run.diagnostics.rule import Rule


class RuleWords(NamedTuple):
    """What one source, the command line or a file, says about the rules: ids, or the beginnings of ids."""

    select: tuple[str, ...] = ()
    """The rules that run. Empty: no change."""
    ignore: tuple[str, ...] = ()
    """The rules that do not run."""


def rule_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return words in upper case.

    Raises:
        BadEntry: a word is the beginning of no id.
    """
    found = []
    for word in words:
        prefix = word.strip().upper()
        if len(prefix) < 2 or not any(rule.id.startswith(prefix) for rule in all_rules()):
            raise BadEntry(f"{word!r} is no rule{nearest_text(word)}; write an id or its beginning (GT204, GT2)")
        found.append(prefix)
    return tuple(found)


def selected_rules(sources: Sequence[RuleWords]) -> tuple[Rule, ...]:
    """Return the rules that run. A later source decides over an earlier one, and without a source the defaults run.

    Within a source the longer word decides: with `select` GT204 and `ignore` GT2, GT204 runs.
    """
    return tuple(rule for rule in all_rules() if _is_selected(rule, sources))


def rules_with_ids(ids: Collection[str] | None) -> tuple[Rule, ...]:
    """Return the rules with these ids; for None those of gradtui that are on by default. A tracker adds those of plugins."""
    if ids is None:
        return tuple(rule for rule in own_rules() if rule.is_default)
    return tuple(rule for rule in all_rules() if rule.id in ids)


def rule_named(word: str) -> Rule:
    """Return the rule with an id in upper or lower case.

    Raises:
        BadEntry: there is none.
    """
    rule = next((rule for rule in all_rules() if rule.id == word.strip().upper()), None)
    if rule is None:
        raise BadEntry(f"{word!r} is no rule{nearest_text(word)}; gradtui rules lists all")
    return rule


def nearest_text(word: str) -> str:
    """Return ` (the nearest is GT204)`, or an empty text if no id resembles a word."""
    ids = [rule.id for rule in all_rules()]
    written = word.strip().upper()[:80].replace("O", "0")
    nearest = difflib.get_close_matches(written, ids, n=1, cutoff=0.4)
    return f" (the nearest is {nearest[0]})" if nearest else ""


def _is_selected(rule: Rule, sources: Sequence[RuleWords]) -> bool:
    is_on = rule.is_default
    for source in sources:
        chosen, ignored = _longest(rule, source.select), _longest(rule, source.ignore)
        if source.select:
            is_on = chosen > ignored
        elif ignored:
            is_on = False
    return is_on


def _longest(rule: Rule, words: Iterable[str]) -> int:
    """Return the length of the longest word that an id begins with; 0 if it begins with none."""
    return max((len(word) for word in words if rule.id.startswith(word)), default=0)
