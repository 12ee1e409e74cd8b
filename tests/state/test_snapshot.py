"""The state of a run as JSON: a later viewer that reads it, and then follows, has the state of the first one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.fakes import coop_chain, coop_model, coop_run, finding, started
from helpers.metric_events import metrics_logged
from helpers.states import state_after
from helpers.summaries import summarised

from gradtui.protocol import events as ev
from gradtui.protocol.commands import SetBreakpoint, SetTrainable
from gradtui.protocol.json_text import to_line
from gradtui.protocol.json_values import Decoders, NotReadableError, encoder, fields_of
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.state.series import Series
from gradtui.run.state.snapshot import restored, snapshot

MODEL = coop_model()
MORE: list[ev.Event] = [
    coop_chain(MODEL),
    ev.MicroStepMeasured(3.0, 120, 1, float("inf")),
    ev.CommandApplied(3.0, 120, SetTrainable(1, "ctx", False), "froze ctx", (0,)),
    ev.CommandRejected(3.0, 120, SetTrainable(2, "x", False), "nothing is named x"),
    ev.CommandApplied(3.0, 120, SetBreakpoint(3, "loss", 2.5), "stops", ()),
    ev.ForecastMade(3.0, 120, "1", frozenset({2}), ev.Change((0,), (), frozenset({3})), -5, -7, work=0.5),
    ev.OperationsRecorded(
        3.0, 120, (), (ev.Operation("aten.relu.default", (ev.TensorNumber(0), 1.0), (), (1,), True, 0),), (1,)
    ),
    metrics_logged(),
    ev.RunEnded(9.0, 120, 1, "Traceback\u2028\x1b[31m"),
]


def read_again(state: RunState) -> RunState:
    return restored(json.loads(to_line(snapshot(state))))


@pytest.mark.parametrize("steps", [0, 3, 120])
def test_a_state_comes_back_as_it_was(steps: int) -> None:
    state = state_after(*(coop_run(steps) if steps else [started()]), *(MORE if steps == 120 else ()))
    state.findings.append(finding())
    again = read_again(state)
    assert summarised(again, dropped=1) == summarised(state, dropped=1)
    assert to_line(snapshot(again)) == to_line(snapshot(state))
    assert again.log == state.log
    assert again.findings == state.findings
    assert [*again.metrics.by_name] == [*state.metrics.by_name]
    assert list(again.gradient_norm) == list(state.gradient_norm)


def test_curve_that_older_version_has_written_goes_on() -> None:
    fields = fields_of(Series)
    convert = encoder(Series)
    assert convert is not None
    written = convert(state_after(*coop_run(40)).loss)
    assert fields[-1] == "_means"
    loss: Series = Decoders({"Series": fields[:-1]}).of(Series)(written[:-1])
    assert loss.means == loss.values
    loss.append(41, 0.5)
    assert loss.means == loss.values
    assert loss.last == 0.5


@pytest.mark.parametrize("at", [1, 10, 77])
def test_what_follows_is_applied_as_before(at: int) -> None:
    events = [*coop_run(120), *MORE]
    whole, again = state_after(*events), read_again(state_after(*events[:at]))
    for event in events[at:]:
        apply(again, event)
    assert to_line(snapshot(again)) == to_line(snapshot(whole))


def test_operations_and_secrets_stay_in_the_process() -> None:
    secret = ev.RunStarted(0.0, 0, "a.py", ("--token", "abc"), 1, "cpu", "", "", None)
    line = to_line(snapshot(state_after(secret, *MORE[-2:-1])))
    assert "abc" not in line
    assert "aten.relu" not in line


@pytest.mark.parametrize("damage", [{}, {"names": {}}, {"names": 1}, {"state": ["x"]}, {"state": None}])
def test_something_else_is_refused(damage: dict[str, Any]) -> None:
    value = json.loads(to_line(snapshot(RunState()))) | damage if damage else {}
    with pytest.raises(NotReadableError):
        restored(value)
