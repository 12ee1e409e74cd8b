"""Lightning with automatic optimization: accumulation, clipping, validation, its checkpoints and its bar by tqdm."""

import json
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(L.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))
        self.micro_steps = 0

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.micro_steps += 1
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def data(seed):
    draw = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(28, 6, generator=draw), torch.randn(28, 1, generator=draw))


L.seed_everything(5)
module = Regressor()
trainer = L.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=2,
    accumulate_grad_batches=2,
    gradient_clip_val=0.5,
    log_every_n_steps=2,
    logger=CSVLogger(".", name="logs"),
    callbacks=[TQDMProgressBar(), ModelCheckpoint("checkpoints", monitor="val_loss")],
)
# 7 batches are 3 steps of 2 micro-steps and one of 1.
trainer.fit(module, DataLoader(data(1), batch_size=4, shuffle=True), DataLoader(data(2), batch_size=14))
torch.save(module.state_dict(), "weights.pt")
torch.save(torch.get_rng_state(), "generator.pt")
print("after", trainer.global_step, "steps", trainer.callback_metrics["val_loss"].item())
counts = {"steps": trainer.global_step, "micro_steps": module.micro_steps, "skipped": 0}
Path("counts.json").write_text(json.dumps(counts))
