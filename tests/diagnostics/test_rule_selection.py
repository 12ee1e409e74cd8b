"""Which rules run: by id, by the beginning of ids, from a file and from the command line."""

from __future__ import annotations

import dataclasses

import pytest

from gradtui.protocol.codec import BadEntry
from gradtui.run.diagnostics import all_rules, selection
from gradtui.run.diagnostics.selection import RuleWords, rule_named, rule_words, rules_with_ids, selected_rules

IDS = ("GT101", "GT201", "GT204", "GT205", "GT301")


@pytest.fixture(autouse=True)
def _five_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rules, of which GT301 is off by default."""
    some = all_rules()[0]
    rules = tuple(dataclasses.replace(some, id=id_, is_default=id_ != "GT301") for id_ in IDS)
    monkeypatch.setattr(selection, "all_rules", lambda: rules)
    monkeypatch.setattr(selection, "own_rules", lambda: rules)


@pytest.mark.parametrize(
    ("file", "command_line", "ids"),
    [
        (RuleWords(), RuleWords(), "GT101 GT201 GT204 GT205"),
        (RuleWords(("GT2",)), RuleWords(), "GT201 GT204 GT205"),
        (RuleWords(("GT301",)), RuleWords(), "GT301"),
        (RuleWords(("GT",)), RuleWords(), "GT101 GT201 GT204 GT205 GT301"),
        (RuleWords((), ("GT2",)), RuleWords(), "GT101"),
        (RuleWords(("GT2",), ("GT204",)), RuleWords(), "GT201 GT205"),
        (RuleWords(("GT204",), ("GT2",)), RuleWords(), "GT204"),
        (RuleWords(("GT204",), ("GT204",)), RuleWords(), ""),
        (RuleWords(("GT1", "GT3"), ()), RuleWords((), ("GT3",)), "GT101"),
        (RuleWords(("GT1",), ("GT204",)), RuleWords(("GT204",)), "GT204"),
        (RuleWords((), ("GT101",)), RuleWords((), ("GT2",)), ""),
    ],
)
def test_selection(file: RuleWords, command_line: RuleWords, ids: str) -> None:
    assert " ".join(rule.id for rule in selected_rules((file, command_line))) == ids


def test_words_are_checked() -> None:
    assert rule_words(["GT2", " gt301 "]) == ("GT2", "GT301")
    for word, part in (
        ("GT20x", "(the nearest is GT20"),
        ("GT999", "GT999"),
        ("", "''"),
        ("G", "'G'"),
        ("foo", "'foo' is no rule;"),
    ):
        with pytest.raises(BadEntry) as caught:
            rule_words(["GT1", word])
        assert part in str(caught.value)
        assert "(GT204, GT2)" in str(caught.value)


def test_a_rule_by_its_id() -> None:
    assert rule_named("gt204").id == "GT204"
    for word in ("GT2", "GT2044", "explain"):
        with pytest.raises(BadEntry, match="gradtui rules lists all"):
            rule_named(word)


def test_rules_with_ids() -> None:
    assert [rule.id for rule in rules_with_ids(None)] == list(IDS[:-1])
    assert [rule.id for rule in rules_with_ids(("GT301", "GT101"))] == ["GT101", "GT301"]
    assert rules_with_ids(()) == ()
