"""Where in training a logged value belongs, what is shown once, and that a logger's call stays as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.calls import calls_of
from helpers.loggers import imported, logger_class
from helpers.watched import Watched, watched
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gradtui.probe.metrics import logged_metrics
from gradtui.protocol.events import MetricsLogged
from gradtui.protocol.metrics import MAX_METRICS, MAX_NAME
from gradtui.protocol.vocabulary import Phase

Log = Callable[..., Any]
DATA = TensorDataset(torch.ones(12, 3), torch.zeros(12, 1))


class Loop:
    """A model that is trained on three batches, and evaluated on one."""

    def __init__(self) -> None:
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def epoch(self, within: Log = print, after: Log = lambda: None) -> None:
        for x, y in DataLoader(DATA, batch_size=4):
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            within(loss)
            loss.backward()
            self.optimizer.step()
            after()

    def evaluate(self) -> None:
        with torch.no_grad():
            for x, _ in DataLoader(DATA, batch_size=12):
                self.model(x)


def curve(seen: Watched, name: str) -> list[tuple[int, float]]:
    return [*seen.state.metrics.by_name[name].points]


@pytest.mark.parametrize("budget", [100.0, 1e-9], ids=["sampled", "buffered"])
def test_value_belongs_to_current_or_last_step(wandb: Any, budget: float) -> None:
    losses: list[float] = []

    def within(loss: torch.Tensor) -> None:
        losses.append(loss.item())
        wandb._log({"loss": loss})

    with watched(budget=budget) as seen:
        loop = Loop()
        for _ in range(10):
            loop.epoch(within, lambda: wandb._log({"after": len(losses)}))
    assert curve(seen, "loss") == [*enumerate(losses, start=1)]
    assert curve(seen, "after") == [(step, step) for step in range(1, 31)]


def test_what_follows_an_evaluation_is_of_the_validation(wandb: Any) -> None:
    with watched() as seen:
        loop = Loop()
        for _ in range(2):
            loop.epoch(lambda _: wandb._log({"error": 1.0}))
            wandb._log({"mean": 1.0})
            loop.evaluate()
            wandb._log({"accuracy": 0.5, "train/accuracy": 0.6, "lr": 0.1})
    sides = {name: metric.side for name, metric in seen.state.metrics.by_name.items()}
    assert sides == {"error": "", "mean": "", "accuracy": "validation", "train/accuracy": "training", "lr": ""}
    assert curve(seen, "accuracy") == [(3, 0.5), (6, 0.5)]


@pytest.mark.parametrize("first", ["training", "validation"])
def test_writer_of_validation_has_own_curves(first: str) -> None:
    made = logger_class("SummaryWriter", "add_scalar")
    with imported("torch.utils.tensorboard.writer", SummaryWriter=made), watched() as seen:
        loop, training, validation = Loop(), made(), made()
        if first == "validation":
            loop.evaluate()
            validation.add_scalar("loss", 7.0, 0)
        for epoch in range(3):
            loop.epoch(lambda _: training.add_scalar("loss", 1.0, 0))
            loop.evaluate()
            validation.add_scalar("loss", 8.0 + epoch, 0)
            validation.add_scalar("train/loss", 2.0, 0)
            training.add_scalar("lr", 0.1, 0)
            validation.add_scalar("lr", 0.2, 0)
        # One writer logs both, after an evaluation too.
        training.add_scalar("loss", 1.0, 0)
    other = "evaluation" if first == "training" else "training"
    assert [*seen.state.metrics.by_name] == ["loss", f"loss ({other})", "train/loss", "lr"]
    of_training, of_validation = ("loss", f"loss ({other})") if first == "training" else (f"loss ({other})", "loss")
    assert {value for _, value in curve(seen, of_training)} == {1.0}
    assert [value for _, value in curve(seen, of_validation)][-3:] == [8.0, 9.0, 10.0]
    assert seen.state.metrics.by_name[of_validation].side == "validation"


def test_epoch_bar_shows_training_not_validation() -> None:
    made = logger_class("tqdm", "set_postfix")
    with imported("tqdm.std", tqdm=made), watched() as seen:
        loop, outer, inner = Loop(), made(), made()
        for _ in range(2):
            loop.epoch(lambda _: inner.set_postfix(loss=1.0))
            loop.evaluate()
            outer.set_postfix(loss=1.5, train_loss=1.5, val_loss=2.0)
    assert [*seen.state.metrics.by_name] == ["loss", "train_loss", "val_loss"]


def test_passes_over_the_training_data_are_epochs(wandb: Any) -> None:
    with watched() as seen:
        loop = Loop()
        for _ in range(3):
            loop.epoch(lambda _: wandb._log({"a": 1.0}))
            loop.evaluate()
            seen.probe.parts.metrics._flush_at = 0
            wandb._log({"b": 1.0})
    assert [(step, passes) for step, passes in seen.state.metrics.passes if step % 3 == 0] == [
        (3, 1.0),
        (6, 2.0),
        (9, 3.0),
    ]


def test_metric_through_two_loggers_is_read_once(wandb: Any) -> None:
    trainer = logger_class("Trainer", "log")
    log = trainer.log

    def through(self: Any, logs: dict[str, float]) -> Any:
        wandb._log({f"train/{name}": value for name, value in logs.items()})
        return log(self, logs)

    trainer.log = through
    with imported("transformers.trainer", Trainer=trainer), watched() as seen:
        assert trainer().log({"loss": 0.5}) == 1
    assert [*seen.state.metrics.by_name] == ["loss"]
    assert wandb.kept == [(({"train/loss": 0.5},), {})]


def test_library_imported_later_is_found() -> None:
    made = logger_class("Run", "track")
    with watched() as seen, imported("aim.sdk.run", Run=made):
        Loop()
        made().track(0.5, name="a")
    assert curve(seen, "a") == [(0, 0.5)]


def test_an_exception_of_a_logger_is_the_scripts() -> None:
    class Run:
        def _log(self, data: object) -> None:
            raise TypeError(f"not {data}")

    with imported("wandb.sdk.wandb_run", Run=Run), watched() as seen:
        with pytest.raises(TypeError, match="not 3") as caught:
            Run()._log(3)
        assert len(caught.traceback) == 2
        with pytest.raises(TypeError):
            Run()._log({"a": 1.0})
    assert not seen.state.metrics.by_name


def test_names_are_cleaned_and_bounded(wandb: Any) -> None:
    names = ["a\x1b[31mb", "x" * 10_000, "", "half \ud800"]
    with watched() as seen:
        wandb._log({3: 1.0, **dict.fromkeys(names, 1.0)})
        wandb._log({f"metric {number}": 1.0 for number in range(MAX_METRICS)})
    metrics = seen.state.metrics
    assert [*metrics.by_name][:3] == ["a·[31mb", "x" * (MAX_NAME - 1) + "…", "half ?"]
    assert (len(metrics.by_name), metrics.omitted) == (MAX_METRICS, 3)


def test_calls_beyond_the_room_are_counted(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_metrics, "_MAX_WAITING", 10)
    with watched() as seen:
        seen.probe.parts.metrics._flush_at = 1 << 62
        for number in range(15):
            wandb._log({"a": float(number), "b": 0.0})
    assert seen.state.metrics.dropped == 10
    assert curve(seen, "a") == [(0, 14.0)]


def test_calls_of_other_threads_are_left_alone(wandb: Any) -> None:
    with watched() as seen:
        Loop().epoch(lambda _: None)
        other = threading.Thread(target=wandb._log, args=({"gpu": 1.0},))
        other.start()
        other.join()
    assert len(wandb.kept) == 1
    assert not seen.all(MetricsLogged)


def test_lightning_logs_steps_and_means_of_epochs() -> None:
    module = logger_class("LightningModule", "log")
    with imported("lightning.pytorch.core.module", LightningModule=module), watched() as seen:
        loop, own = Loop(), module()

        def training_step(loss: torch.Tensor) -> None:
            own.log("loss", loss)
            own.log("both", 1.0, on_epoch=True)
            own.log("mean", 1.0, on_step=False)

        loop.epoch(training_step)
        loop.evaluate()
        own.log("val_loss", 1.0)
    assert [*seen.state.metrics.by_name] == ["loss", "both_step"]
    assert seen.probe.phases.phase is Phase.DATA


class LateValue:
    """A value that a busy device has not computed yet."""

    def __init__(self, value: float) -> None:
        self.value, self.is_there = value, False

    def wait(self) -> None:
        self.is_there = True


def test_device_values_keep_order_and_arrive_finally(wandb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    late = [LateValue(float(number)) for number in range(3)]
    monkeypatch.setattr(logged_metrics, "value_of", lambda given, **_: given)
    with watched() as seen:
        metrics = seen.probe.parts.metrics
        for value in late:
            wandb._log({"a": value})
            wandb._log({"b": value.value})
        metrics.flush()
        assert not seen.all(MetricsLogged)
        late[0].is_there = True
        metrics.flush()
        assert curve(seen, "b") == [(0, 0.0)]
    assert all(each.is_there for each in late)
    assert curve(seen, "b") == [(0, 2.0)]


@pytest.mark.gpu
@pytest.mark.fake_cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_value_on_device_is_never_waited_for(wandb: Any) -> None:
    value = torch.tensor(0.25).cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with watched() as seen:
            wandb._log({"a": value})
            seen.probe.parts.metrics.flush()
            # What the copy needs may wait from here on.
            torch.cuda.set_sync_debug_mode("default")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert curve(seen, "a") == [(0, 0.25)]


def test_a_logged_call_takes_few_calls_of_ours(wandb: Any) -> None:
    """As found: 9."""
    counts: list[int] = []
    with watched() as seen:
        wandb._log({"a": 1.0, "b": 2.0})
        seen.probe.parts.metrics._flush_at = 1 << 62
        for data in ({"a": 1.0, "b": 2.0}, {f"m{number}": 1.0 for number in range(50)}):
            wandb._log(data)
            counts.append(calls_of(lambda: wandb._log(data)))  # noqa: B023
    assert counts[0] <= 10
    assert counts[1] == counts[0], "nothing is called for each value"
