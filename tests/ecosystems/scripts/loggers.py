"""Trains with one of the loggers, and writes into `own.json` what the logger has kept: by name, pairs of step and value."""

import csv
import json
import os
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(96, 4)
Y = X.sum(1, keepdim=True)
EPOCHS, BATCH = 2, 16


def batches(part):
    return DataLoader(TensorDataset(X[part], Y[part]), batch_size=BATCH)


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(log, bar=lambda loader: loader, shown=lambda bar, loss: None):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    for _ in range(EPOCHS):
        loader = bar(batches(slice(0, 64)))
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            log({"train/loss": loss.item(), "tensor": loss.detach()}, step)
            shown(loader, loss.item())
        with torch.no_grad():
            log({"val/loss": nn.functional.mse_loss(model(X[64:]), Y[64:]).item()}, step)


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def tensorboard():
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("tb") as writer:
        train(lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()])
    return scalars("tb")


def tqdm():
    from tqdm import tqdm

    kept = []

    def shown(bar, loss):
        kept.append(loss)
        bar.set_postfix(loss=loss)

    train(lambda values, step: None, tqdm, shown)
    return {"loss": [*enumerate(kept, start=1)]}


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(log_with="tensorboard", project_dir="acc", cpu=True)
    accelerator.init_trackers("run")
    train(lambda values, step: accelerator.log(values, step=step))
    accelerator.end_training()
    # Its tracker keeps numbers only.
    return scalars("acc/run")


def transformers():
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, labels=None):
            out = self.net(x)
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    def rows(first, last):
        return [{"x": X[index], "labels": Y[index]} for index in range(first, last)]

    given = TrainingArguments(
        "hf", num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, logging_steps=1, eval_strategy="epoch",
        save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(Model(), given, train_dataset=rows(0, 64), eval_dataset=rows(64, 96))
    trainer.train()
    own = {}
    for row in trainer.state.log_history:
        for name, value in row.items():
            own.setdefault(name, []).append((row["step"], value))
    del own["step"]
    return own


def lightning():
    import lightning as L
    from lightning.pytorch.loggers import CSVLogger

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, _):
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, _):
            self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=CSVLogger("l", version=0), log_every_n_steps=1,
        enable_progress_bar=False, enable_checkpointing=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Module(), batches(slice(0, 64)), batches(slice(64, 96)))
    own = {}
    with open("l/lightning_logs/version_0/metrics.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name in ("train_loss", "val_loss"):
                if row[name]:
                    own.setdefault(name, []).append((int(row["step"]) + 1, float(row[name])))
    return own


def mlflow():
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
    with mlflow.start_run() as run:
        train(
            lambda values, step: mlflow.log_metrics(
                {name: value for name, value in values.items() if isinstance(value, float)}, step=step
            )
        )
    client, run_id = mlflow.MlflowClient(), run.info.run_id
    names = client.get_run(run_id).data.metrics
    return {name: [(each.step, each.value) for each in client.get_metric_history(run_id, name)] for name in names}


def trackio():
    os.environ["TRACKIO_DIR"] = os.path.abspath("trackio")
    import sqlite3

    import trackio

    trackio.init(project="p")
    train(lambda values, step: trackio.log({"train/loss": 0.0, **values} if "val/loss" not in values else values, step))
    trackio.finish()
    own = {}
    (file,) = Path("trackio").glob("*.db")
    for step, metrics in sqlite3.connect(file).execute("select step, metrics from metrics order by id"):
        for name, value in json.loads(metrics).items():
            if isinstance(value, float):
                own.setdefault(name, []).append((step, value))
    return own


def wandb():
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import wandb

    run = wandb.init(project="p")
    train(lambda values, step: wandb.log(values, step=step))
    run.finish()
    # Its process has written the file when it has ended.
    wandb.teardown()
    own = {}
    (file,) = Path("wandb").glob("offline-run-*/run-*.wandb")
    for record in wandb_records(file.read_bytes()):
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for name in row.keys() & {"train/loss", "tensor", "val/loss"}:
            own.setdefault(name, []).append((row["_step"], row[name]))
    return own


def wandb_records(data):
    """Read the records of a file of W&B, a log of LevelDB's format after a header of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    block, at, parts = 32768, 7, b""
    while at < len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield Record.FromString(parts)
            parts = b""


def aim():
    from aim import Run
    from aim.storage.hashing import hash_auto

    run = Run(repo=".", system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)
    train(lambda values, step: [run.track(value, name=name, step=step) for name, value in values.items()])
    steps = {hash_auto(step): step for step in range(EPOCHS * len(X) // BATCH)}
    own = {
        each.name: sorted((steps[step], value) for step, value in zip(*each.values.sparse_list()))
        for each in run.metrics()
    }
    run.close()
    return own


warnings.simplefilter("ignore")
own = {"tensorboard": tensorboard, "tqdm": tqdm, "accelerate": accelerate, "transformers": transformers,
       "lightning": lightning, "mlflow": mlflow, "trackio": trackio, "wandb": wandb, "aim": aim}[sys.argv[1]]()  # fmt: skip
Path("own.json").write_text(json.dumps(own), encoding="utf-8")
