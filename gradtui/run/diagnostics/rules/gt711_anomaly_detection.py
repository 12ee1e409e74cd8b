"""GT711: anomaly detection is on while the script trains."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState


def check(state: RunState) -> Iterator[Match]:
    """Match a run whose newest sampled backward ran with anomaly detection."""
    if state.step_times is not None and state.step_times.anomaly_detection:
        yield Match("torch.autograd's anomaly detection is on", {"anomaly_detection": True}, is_exact=True)


RULE = Rule(
    "GT711",
    Level.WARNING,
    "anomaly detection slows down each step",
    "it keeps a stack trace for each operation of forward, and looks for NaN in each gradient of backward",
    "leave it out once the fault is found; gradtui names the first NaN without it (GT209)",
    check,
    needs=needs_steps,
)
