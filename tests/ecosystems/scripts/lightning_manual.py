"""Lightning with manual optimization: two optimizers that take turns, toggled, and the bar that it draws by default."""

import json
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Pair(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1))
        self.micro_steps = 0

    def training_step(self, batch, batch_idx):
        (real,) = batch
        of_generator, of_critic = self.optimizers()
        noise = torch.randn(len(real), 4)
        self.toggle_optimizer(of_critic)
        between = self.critic(self.generator(noise).detach()).mean() - self.critic(real).mean()
        self.take(of_critic, between)
        self.untoggle_optimizer(of_critic)
        self.toggle_optimizer(of_generator)
        loss = -self.critic(self.generator(noise)).mean()
        self.take(of_generator, loss)
        self.untoggle_optimizer(of_generator)
        self.log_dict({"g": loss, "c": between}, prog_bar=True)

    def take(self, optimizer, loss):
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.micro_steps += 1
        self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (self.generator, self.critic)]


L.seed_everything(5, verbose=False)
module = Pair()
trainer = L.Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False)
trainer.fit(module, DataLoader(TensorDataset(torch.randn(24, 2) + 2), batch_size=4))
torch.save(module.state_dict(), "weights.pt")
torch.save(torch.get_rng_state(), "generator.pt")
print("after", trainer.global_step, "steps")
Path("counts.json").write_text(
    json.dumps({"steps": trainer.global_step, "micro_steps": module.micro_steps, "skipped": 0})
)
