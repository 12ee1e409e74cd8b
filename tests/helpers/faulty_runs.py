"""Small trainings with an injected fault, and healthy ones that look like faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH = 48, 8


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Noisy values of a linear function; one sample may be bad."""

    def __init__(self, seed: int, bad: int | None = None, factor: float = math.nan) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(STEPS * BATCH, 6, generator=generator)
        self.y = self.x @ torch.linspace(-1, 1, 18).view(6, 3)
        self.y += 0.3 * torch.randn(STEPS * BATCH, 3, generator=generator)
        if bad is not None:
            (self.x if math.isnan(factor) else self.y)[bad] *= factor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.second(self.norm(x + torch.tanh(self.first(x))))
        return made


MODELS: tuple[Callable[[], nn.Module], ...] = (mlp, normed, Residual)
OPTIMIZERS: tuple[Callable[[Any], Optimizer], ...] = (
    lambda parameters: SGD(parameters, 0.02, momentum=0.9),
    lambda parameters: Adam(parameters, 0.005),
    lambda parameters: AdamW(parameters, 0.005, foreach=True),
    lambda parameters: RMSprop(parameters, 0.002),
    lambda parameters: Adagrad(parameters, 0.05),
)


class Training:
    """A training of one epoch, made from a seed. Subclasses disturb it."""

    at = 0
    """The step at which something happens, from 1; by default it follows from the seed."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.at = seed, self.at or 20 + seed % 17
        self.model = MODELS[seed % len(MODELS)]()
        self.optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)](self.model.parameters())
        self.losses: list[float] = []

    def data(self) -> Samples:
        return Samples(self.seed)

    def run(self) -> None:
        self.model.train()
        for step, (x, y) in enumerate(DataLoader(self.data(), batch_size=BATCH), 1):
            self.before(step)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x), y)
            self.backward(step, loss)
            self.losses.append(loss.item())
            self.step(step)

    def before(self, step: int) -> None: ...

    def backward(self, step: int, loss: Tensor) -> None:
        loss.backward()

    def step(self, step: int) -> None:
        self.optimizer.step()

    @property
    def is_finite(self) -> bool:
        values = [*self.model.parameters(), *self.model.buffers()]
        values += [each for state in self.optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
        return all(bool(each.isfinite().all()) for each in values)


class BadGradient(Training):
    """One parameter gets a gradient with NaN or Inf, once."""

    def backward(self, step: int, loss: Tensor) -> None:
        loss.backward()
        if step == self.at:
            parameters = list(self.model.parameters())
            gradient = parameters[self.seed % len(parameters)].grad
            assert gradient is not None
            gradient.view(-1)[0] = math.nan if self.seed % 2 else math.inf


class BadWeight(Training):
    """The script itself spoils a weight between two steps."""

    def step(self, step: int) -> None:
        super().step(step)
        if step == self.at:
            with torch.no_grad():
                next(self.model.parameters()).view(-1)[0] = math.nan


class BadSample(Training):
    """A sample of the data has NaN."""

    def data(self) -> Samples:
        return Samples(self.seed, bad=(self.at - 1) * BATCH)


class Outlier(Training):
    """A label of the data is far too large: the loss has a spike, and one step spoils the weights."""

    def data(self) -> Samples:
        return Samples(self.seed, bad=(self.at - 1) * BATCH, factor=1e4)


class ExplodingRate(Training):
    """The script multiplies its learning rate at each step, whatever the optimizer has."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = mlp()
        self.optimizer = SGD(self.model.parameters(), 0.02, momentum=0.9 * (seed % 2))

    def before(self, step: int) -> None:
        if step >= self.at:
            for group in self.optimizer.param_groups:
                group["lr"] = 0.02 * 10.0 ** (step - self.at + 2)


FAULTS = (BadGradient, BadWeight, BadSample, Outlier, ExplodingRate)


class Noisy(Training):
    """The loss varies from step to step, since its scale does."""

    def backward(self, step: int, loss: Tensor) -> None:
        (loss * (0.5 + float(torch.rand(())))).backward()


class WarmUp(Training):
    """The learning rate grows from a small one, and falls again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scheduler = LambdaLR(self.optimizer, lambda step: min((step + 1) / 20, (STEPS - step) / STEPS + 0.1))

    def step(self, step: int) -> None:
        super().step(step)
        self.scheduler.step()


class Scaled(Training):
    """A loss scaler skips steps whose gradients have Inf."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=10)

    def backward(self, step: int, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()
        if step in (self.at, self.at + 1, self.at + 7):
            gradient = next(self.model.parameters()).grad
            assert gradient is not None
            gradient.view(-1)[0] = math.inf

    def step(self, step: int) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Accumulated(Training):
    """Each step applies the gradients of three batches."""

    def run(self) -> None:
        loader = DataLoader(self.data(), batch_size=BATCH)
        for number, (x, y) in enumerate(loader, 1):
            loss = nn.functional.mse_loss(self.model(x), y) / 3
            loss.backward()
            self.losses.append(loss.item())
            if number % 3 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()


class Careful(BadSample):
    """The script looks at its loss, and leaves out a batch whose loss is not finite after its backward."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = Residual()
        self.optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)](self.model.parameters())

    def step(self, step: int) -> None:
        if math.isfinite(self.losses[-1]):
            super().step(step)


HEALTHY = (Noisy, WarmUp, Scaled, Accumulated, Careful)
