"""The metrics of a script are those that its logger keeps, with each of the loggers that is here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import fork_server

from gradtui.records.recording import Recording
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState

from .cases import SCRIPTS

ROOT = Path(__file__).parents[2]
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
    command = [sys.executable, "-m", "gradtui", "--plain", "--record", "run.jsonl", str(SCRIPTS / "loggers.py"), logger]
    offline = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environ = {**os.environ, **offline}
    ran = fork_server.run(
        command, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=180
    )
    assert ran.returncode == 0, ran.stderr.decode()
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
