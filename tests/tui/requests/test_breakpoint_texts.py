"""The text of a breakpoint, and what is said about it."""

from __future__ import annotations

import pytest
from helpers.fakes import coop_run
from helpers.metric_events import metrics_logged
from helpers.states import state_after

from gradtui.protocol.commands import ClearBreakpoint, Command, SetBreakpoint
from gradtui.run.state.run_state import RunState
from gradtui.run.text import breakpoint_text
from gradtui.tui.requests import breakpoints
from gradtui.tui.requests.requests import Refusal


def state() -> RunState:
    return state_after(*coop_run(40))


def made(text: str) -> Command:
    found = breakpoints.typed(text, state())
    assert not isinstance(found, Refusal), found
    return found(7)


@pytest.mark.parametrize(
    ("text", "metric", "value", "above"),
    [
        ("step 500", "step", 500, True),
        ("step=500", "step", 500, True),
        (" 1,500 ", "step", 1500, True),
        ("loss > 3", "loss", 3.0, True),
        ("loss<.1", "loss", 0.1, False),
        ("loss below 0.1", "loss", 0.1, False),
        ("Norm above 10", "norm", 10.0, True),
        ("gradient norm > 1e3", "norm", 1000.0, True),
        ("lr < 1e-4", "lr", 1e-4, False),
        ("memory > 2 GiB", "memory", 2.0 * 2**30, True),
        ("peak > 1.5g", "peak", 1.5 * 2**30, True),
        ("peak > 2 GB", "peak", 2e9, True),
        ("peak > 100", "peak", 100.0, True),
        ("peak > 512 KiB", "peak", 512.0 * 1024, True),
        ("peak > 10 b", "peak", 10.0, True),
        ("Spike", "spike", 0.0, True),
    ],
)
def test_a_condition(text: str, metric: str, value: float, above: bool) -> None:
    command = made(text)
    assert isinstance(command, SetBreakpoint)
    assert (command.metric, command.value, command.above, command.rule) == (metric, value, above, "")


def test_a_finding_of_any_rule_or_of_one() -> None:
    assert made("finding") == SetBreakpoint(7, "finding")
    assert made("finding gt203") == made("GT203") == SetBreakpoint(7, "finding", rule="GT203")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Type a condition, such as loss > 3."),
        ("soon", "soon is no condition: write step 500, loss > 3, spike or finding."),
        ("step 40", "Step 40 is over: 40 steps have been executed."),
        ("accuracy > 3", "accuracy is no metric: it is loss, norm, lr, memory or peak."),
        ("> 3", "Type a metric before >: it is loss, norm, lr, memory or peak."),
        ("loss > much", "much is not a number such as 0.1."),
        ("loss > inf", "inf is not a number such as 0.1."),
        ("loss >= 3", "A breakpoint compares by > or <: write loss > 3."),
        ("memory<=2 GiB", "A breakpoint compares by > or <: write memory<2 GiB."),
        ("loss >", "Type behind > a number such as 0.1."),
        ("memory > 2 quux", "2 quux is not a size such as 2 GiB."),
        ("memory > -1", "-1 is not a size such as 2 GiB."),
    ],
)
def test_bad_input_has_a_sentence(text: str, sentence: str) -> None:
    assert breakpoints.typed(text, state()) == Refusal(sentence)


def test_a_rule_that_is_not_there() -> None:
    found = breakpoints.typed("finding GT999", state())
    assert isinstance(found, Refusal)
    assert found.reason.startswith("'gt999' is no rule")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (SetBreakpoint(1, "step", 1500), "step 1,500"),
        (SetBreakpoint(1, "loss", 0.1, above=False), "loss < 0.1"),
        (SetBreakpoint(1, "peak", 2.0 * 2**30), "memory peak > 2.0 GiB"),
        (SetBreakpoint(1, "memory", float("nan")), "memory > nan"),
        (SetBreakpoint(1, "finding"), "any finding"),
        (SetBreakpoint(1, "finding", rule="GT203"), "finding GT203"),
    ],
)
def test_in_words(command: SetBreakpoint, text: str) -> None:
    assert breakpoint_text(command) == text


def test_list_has_waiting_not_clearing() -> None:
    run = state()
    run.breakpoints = {1: SetBreakpoint(1, "loss", 3.0), 2: SetBreakpoint(2, "step", 50)}
    run.note_submitted(ClearBreakpoint(3, 1))
    run.note_submitted(SetBreakpoint(4, "finding"))
    assert breakpoints.listed(run) == [(2, "step 50"), (4, "any finding")]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("val/accuracy > 0.9", SetBreakpoint(1, "logged", 0.9, name="val/Accuracy")),
        ("VAL/accuracy below 0.2", SetBreakpoint(1, "logged", 0.2, False, name="val/Accuracy")),
        ("gt_iou > 0.5", SetBreakpoint(1, "logged", 0.5, name="gt_iou")),
        ("metric loss < 0.5", SetBreakpoint(1, "logged", 0.5, False, name="loss")),
        ("Metric Not_Yet > 1", SetBreakpoint(1, "logged", 1.0, name="Not_Yet")),
        ("loss < 0.5", SetBreakpoint(1, "loss", 0.5, False)),
    ],
)
def test_metrics_that_the_script_logs(text: str, command: SetBreakpoint) -> None:
    known = state_after(metrics_logged({"val/Accuracy": {1: 0.5}, "gt_iou": {1: 0.1}, "loss": {1: 1.0}}))
    found = breakpoints.typed(text, known)
    assert not isinstance(found, Refusal)
    assert found(1) == command
    assert breakpoint_text(command).startswith(command.name or "loss")


def test_unlogged_name_is_refused_with_others() -> None:
    found = breakpoints.typed("val > 1", state_after(metrics_logged({"val/loss": {1: 0.5}})))
    assert isinstance(found, Refusal)
    assert found.reason.endswith("memory or peak, or what the script logs, such as val/loss.")
