"""The metrics of a script are those that its logger keeps, with each of the loggers that is here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from fork_server import python

from gradtui.records.recording import Recording
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

from .cases import SCRIPTS

LOGGERS = (
    "tensorboard", "tqdm", "accelerate", "transformers", "lightning", "mlflow", "trackio", "wandb", "aim",
)  # fmt: skip
NEEDS = {"accelerate": "tensorboard"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize("logger", LOGGERS)
def test_metrics_have_the_values_of_the_logger(logger: str, tmp_path: Path) -> None:
    for name in (logger, NEEDS.get(logger, logger)):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    words = ("--plain", "--record", "run.jsonl", str(SCRIPTS / "loggers.py"), logger)
    ran = python("-m", "gradtui", *words, cwd=tmp_path, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0, ran.stderr
    state = RunState()
    for event in Recording(tmp_path / "run.jsonl").events():
        apply(state, event)
    assert not state.problems
    own = json.loads((tmp_path / "own.json").read_text(encoding="utf-8"))
    seen = state.metrics.by_name
    assert own
    for name, pairs in own.items():
        assert seen[name].source == logger
        points = dict(seen[name].points)
        assert {step: points[step] for step, _ in pairs} == pytest.approx(dict(pairs), rel=1e-6), name
