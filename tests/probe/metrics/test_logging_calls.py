"""What the arguments of each library's logging call say, with stand-ins of the same signatures."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.loggers import imported, logger_class
from helpers.watched import watched

from gradtui.probe.metrics import LOGGING_CALLS

Seen = dict[str, list[float]]
METRIC = SimpleNamespace(key="loss", value=0.5, timestamp=0, step=3)
CONNECTOR = "trainer.connectors.logger_connector.logger_connector"


def read(module: str, owner: str, method: str, *args: Any, **kwargs: Any) -> Seen:
    """Return the metrics of a run that makes one call."""
    made = logger_class(owner, method)
    with imported(module, **{owner: made}), watched() as seen:
        assert getattr(made(), method)(*args, **kwargs) == 1
    assert made.kept == [(args, kwargs)], "the library gets the script's arguments"
    return {name: metric.points.values for name, metric in seen.state.metrics.by_name.items()}


@pytest.mark.parametrize(
    ("where", "args", "kwargs", "expected"),
    [
        (("wandb.sdk.wandb_run", "Run", "_log"), ({"loss": 0.5, "note": "x"}, 3), {}, {"loss": [0.5]}),
        (("wandb.sdk.wandb_run", "Run", "_log"), (), {"data": {"a": {"b": 1}}, "step": 3}, {"a.b": [1.0]}),
        (("trackio.run", "Run", "log"), (), {"metrics": {"loss": 0.5}}, {"loss": [0.5]}),
        (("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar"), ("a/b", 0.5, 3), {}, {"a/b": [0.5]}),
        (("tensorboardX.writer", "SummaryWriter", "add_scalar"), ("a",), {"scalar_value": 2}, {"a": [2.0]}),
        (
            ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalars"),
            ("loss", {"train": 0.5, "val": 0.6}, 3),
            {},
            {"loss/train": [0.5], "loss/val": [0.6]},
        ),
        (("lightning.pytorch." + CONNECTOR, "_LoggerConnector", "log_metrics"), ({"a": 1.0},), {}, {"a": [1.0]}),
        (("pytorch_lightning." + CONNECTOR, "_LoggerConnector", "log_metrics"), ({"a": 1.0},), {}, {"a": [1.0]}),
        (("lightning.fabric.fabric", "Fabric", "log_dict"), ({"a": 1.0}, 3), {}, {"a": [1.0]}),
        (("lightning.fabric.loggers.csv_logs", "CSVLogger", "log_metrics"), ({"a": 1.0}, 3), {}, {"a": [1.0]}),
        (("transformers.trainer", "Trainer", "log"), ({"a": 0.5, "epoch": 1.0},), {}, {"a": [0.5], "epoch": [1.0]}),
        (("accelerate.accelerator", "Accelerator", "log"), ({"a": 1},), {"step": 3}, {"a": [1.0]}),
        (("mlflow.tracking.client", "MlflowClient", "log_metric"), ("run", "loss", 0.5), {}, {"loss": [0.5]}),
        (("mlflow.tracking.client", "MlflowClient", "log_batch"), ("run",), {"metrics": [METRIC]}, {"loss": [0.5]}),
        (("aim.sdk.run", "Run", "track"), (0.5, "a"), {"context": {"subset": "val"}}, {"val/a": [0.5]}),
        (("aim.sdk.run", "Run", "track"), (0.5,), {"name": "a", "epoch": 2}, {"a": [0.5], "epoch": [2.0]}),
        (("aim.sdk.run", "Run", "track"), ({"a": 1, "b": 2},), {}, {"a": [1.0], "b": [2.0]}),
        (("tqdm.std", "tqdm", "set_postfix"), ({"a": 1},), {"refresh": False, "b": "2", "c": "e"}, {"a": [1.0], "b": [2.0]}),
    ],
)  # fmt: skip
def test_what_a_call_says(
    where: tuple[str, str, str], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Seen
) -> None:
    assert read(*where, *args, **kwargs) == expected


def test_module_whose_import_script_forbids_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", None)
    made = logger_class("Run", "track")
    with imported("aim.sdk.run", Run=made), watched() as seen:
        made().track(1.0, "a")
    assert [*seen.state.metrics.by_name] == ["a"]


def test_every_call_of_table_is_wrapped_and_restored() -> None:
    for call in LOGGING_CALLS:
        made = logger_class(call.owner, call.method)
        before = vars(made)[call.method]
        with imported(call.module, **{call.owner: made}), watched():
            assert vars(made)[call.method] is not before
            assert vars(made)[call.method].__wrapped__ is before
        assert vars(made)[call.method] is before
