"""Plugins: the template works, and a broken one costs nothing but a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gradtui.command_line.cli import parse
from gradtui.probe.metrics import LoggingCall, plugin_calls
from gradtui.run.diagnostics import FindingTracker, Match, Rule, own_rules
from gradtui.run.diagnostics.plugin_rules import PluginRuleError, plugin_rules
from gradtui.run.diagnostics.selection import rule_words, rules_with_ids
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import Problem, RunState
from gradtui.system import plugins

TEMPLATE = Path(__file__).parents[2] / "examples" / "gradtui-plugin" / "src"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(plugins, "_problems", {})
    plugin_rules.cache_clear()
    yield
    plugin_rules.cache_clear()


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: tuple[str, str]) -> None:
    """Install a package: name of the entry point = (its group, the module)."""
    found = folder / "some_plugin-1.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1\n", encoding="utf-8")
    lines = [f"[gradtui.{group}]\n{name} = {module}\n" for name, (group, module) in modules.items()]
    (found / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


def rule(check: Any, id_: str = "EX1001", **fields: Any) -> Rule:
    return Rule(id_, Level.NOTE, "title", "why", "remedy", check, **fields)


def with_rules(monkeypatch: pytest.MonkeyPatch, *rules: Any) -> None:
    """Load a plugin with these rules, without files."""
    module = SimpleNamespace(RULES=rules)
    monkeypatch.setattr(plugins, "_loaded", {plugins.RULES: [plugins.Plugin("p", module)], plugins.METRICS: []})


def test_the_template_s_rule_looks_like_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    install(tmp_path, monkeypatch, example=("rules", "gradtui_example_plugin.rules"))
    with pytest.raises(SystemExit) as ended:
        parse(["rules"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "EX101  note     on   the loss is negative"
    with pytest.raises(SystemExit):
        parse(["explain", "ex101"])
    assert capsys.readouterr().out.startswith("# EX101: the loss is negative\n")
    assert rule_words(["EX"]) == ("EX",)
    assert [each.id for each in rules_with_ids({"EX101", "GT101"})] == ["GT101", "EX101"]
    assert parse(["--select", "EX101", "train.py"]).rules == ("EX101",)


def test_the_template_reads_a_logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    install(tmp_path, monkeypatch, example=("metrics", "gradtui_example_plugin.metrics"))
    assert plugin_calls() == []
    plugins.load(plugins.METRICS)
    (call,) = plugin_calls()
    assert (call.source, call.owner, call.method) == ("my_logger", "Logger", "log")
    assert list(call.read((None, "accuracy", 0.5), {})) == [("accuracy", 0.5)]
    assert list(call.read((None,), {"name": "accuracy", "value": 0.5})) == [("accuracy", 0.5)]
    assert list(call.read((None,), {})) == []


def test_plugins_are_imported_late_beside_default_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    monkeypatch.delitem(sys.modules, "gradtui_example_plugin.rules", raising=False)
    install(tmp_path, monkeypatch, example=("rules", "gradtui_example_plugin.rules"))
    tracker, state = FindingTracker(rules_with_ids(None)), RunState()
    tracker.run(state)
    assert "gradtui_example_plugin.rules" not in sys.modules
    plugins.load(plugins.RULES)
    tracker.run(state)
    assert [each.id for each in tracker.rules] == [*(each.id for each in own_rules() if each.is_default), "EX101"]
    assert state.problems == {}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise ValueError('a\\n b')", "ValueError: a b"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("RULES = []", "it is for the plugin API None, and this gradtui has 1"),
        ("GRADTUI_PLUGIN_API = 2", "it is for the plugin API 2, and this gradtui has 1"),
        ("def __getattr__(name):\n    raise RuntimeError(name)", "RuntimeError: GRADTUI_PLUGIN_API"),
    ],
)  # fmt: skip
def test_plugin_that_cannot_be_imported_is_line(
    source: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    (tmp_path / "broken_plugin.py").write_text(source, encoding="utf-8")
    install(tmp_path, monkeypatch, broken=("rules", "broken_plugin"))
    plugins.load(plugins.RULES)
    assert plugin_rules() == ()
    state, tracker = RunState(), FindingTracker(())
    for _ in range(2):
        tracker.run(state)
    assert {part: (each.error, each.failures) for part, each in state.problems.items()} == {
        "plugin broken": (problem, 1)
    }
    assert [(each.kind, each.text) for each in state.log] == [("probe", f"plugin broken: {problem}")]


def nothing(_state: RunState) -> list[Match]:
    return []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (5, "RULES has an object of type int, which is no Rule"),
        (rule(nothing, "GT101"), "'GT101' is no id"),
        (rule(nothing, "ex1"), "'ex1' is no id"),
        (rule(None), "cannot be called"),
        (rule(nothing, samples="3"), "has no number of samples"),
        (rule(nothing, explains=["GT101"]), "is no frozenset"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_left_out(given: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, given, rule(nothing, "EX2002"))
    assert [each.id for each in plugin_rules()] == ["EX2002"]
    assert problem in plugins.problems()["plugin p"]


def test_each_rule_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, rule(nothing, "GT101"), rule(nothing), rule(nothing))
    assert [each.id for each in plugin_rules()] == ["EX1001"]
    said = plugins.problems()["plugin p"]
    assert "'GT101' is no id" in said
    assert "EX1001 is there already" in said


class UnreadableError(Exception):
    def __str__(self) -> str:
        raise SystemExit


def raises_unreadable(_state: RunState) -> list[Match]:
    raise UnreadableError


def exits(_state: RunState) -> list[Match]:
    sys.exit(1)


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (exits, "SystemExit: 1"),
        (raises_unreadable, "UnreadableError: (not readable)"),
        (lambda _: 5, "TypeError: 'int' object is not iterable"),
        (lambda _: ["match"], "TypeError: an object of type str is no Match"),
        (lambda _: [Match(5, {})], "TypeError: message of a match has another type"),
        (lambda _: [Match("x", None, paths=["a"])], "TypeError: evidence and paths of a match has another type"),
        (lambda _: [Match("x", {"a": object()})], "TypeError: evidence of a match has another type"),
    ],
)  # fmt: skip
def test_a_rule_that_fails_costs_no_other_rule(check: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(state: RunState) -> Any:
        calls.append(1)
        return check(state)

    with_rules(monkeypatch, rule(counted), rule(lambda _: [Match("it is so", {}, is_exact=True)], "EX2002"))
    tracker, state = FindingTracker(plugin_rules()), RunState()
    for _ in range(5):
        tracker.run(state)
    assert [each.message for each in state.findings] == ["it is so"]
    assert len(calls) == 3
    assert state.problems["rule EX1001"] == Problem(f"{problem}; it is switched off", 3)
    assert [each.text for each in state.log if each.kind == "probe"] == [f"rule EX1001: {problem}"]


def test_a_slow_rule_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr("gradtui.run.diagnostics.plugin_rules.perf_counter", lambda: next(times))
    with_rules(monkeypatch, rule(lambda _: [Match("slow", {})]))
    (slow,) = plugin_rules()
    for _ in range(2):
        assert [each.message for each in slow.check(RunState())] == ["slow"]
    with pytest.raises(PluginRuleError, match=r"^it took 1\.0 s; it is switched off$"):
        slow.check(RunState())
    assert list(slow.check(RunState())) == []


def test_texts_of_rules_are_printed_without_controls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is not drawn by gradtui: what is printed there is cleaned before."""
    hostile = "\x1b[2J\x1b]0;x\x07a\nb\u202e"
    with_rules(monkeypatch, Rule("EX1001", Level.NOTE, hostile, hostile, hostile, nothing))
    (given,) = plugin_rules()
    assert {given.title, given.why, given.remedy} == {"·[2J·]0;x·a·b·"}
    for words in (["rules"], ["explain", "EX1001"]):
        with pytest.raises(SystemExit):
            parse(words)
        assert capsys.readouterr().out.replace("\n", "").isprintable()


def test_a_reader_that_fails_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def read(arguments: Any, named: Any) -> Any:
        calls.append(1)
        raise SystemExit

    module = ModuleType("m")
    module.LOGGING_CALLS = [LoggingCall("s", "m", "O", "log", read), "x"]  # type: ignore[attr-defined]
    monkeypatch.setattr(plugins, "_loaded", {plugins.METRICS: [plugins.Plugin("m", module)]})
    (call,) = plugin_calls()
    assert plugins.problems() == {"plugin m": "LOGGING_CALLS has x, which is no usable LoggingCall"}
    assert [list(call.read((), {})) for _ in range(3)] == [[]] * 3
    assert len(calls) == 1
    assert plugins.problems() == {"plugin m": "SystemExit: "}
