"""A run that is toggled through commands ends to the bit as the script with the same schedule written into it.

Any schedule: which parts freeze and unfreeze at which steps, with statistics held, under SGD with momentum, Adam and AdamW,
whether gradients are cleared to None or to zeros, accumulated over micro-batches or not, and with a part that is in no
optimizer at first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from helpers.toggling import Make, X
from helpers.watched import watched
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gradtui.protocol.commands import SetTrainable
from gradtui.protocol.events import CommandRejected

STEPS = 12
PARTS = ("stem", "body", "body.0", "body.1", "body.1.weight", "late")
"""What schedules toggle. `head` always trains, so that no command is refused."""

OPTIMIZERS: dict[str, Make] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.stem = nn.Linear(4, 6)
        self.body = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.2))
        self.late = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)
        self.late.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.late(self.body(self.stem(x).tanh())).tanh())


@dataclass(frozen=True)
class Schedule:
    optimizer: str
    to_none: bool
    micro_steps: int
    changes: tuple[tuple[int, str, bool], ...]
    """(step, part, whether it trains from then on), in order."""


schedules = st.builds(
    Schedule,
    st.sampled_from(sorted(OPTIMIZERS)),
    st.booleans(),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, STEPS - 1), st.sampled_from(PARTS), st.booleans()), max_size=6).map(
        lambda changes: tuple(sorted(changes, key=lambda change: change[0]))
    ),
)


def train(schedule: Schedule, at: Callable[[Model, torch.optim.Optimizer, int], None]) -> Model:
    model = Model()
    optimizer = OPTIMIZERS[schedule.optimizer]([p for p in model.parameters() if p.requires_grad])
    torch.manual_seed(7)
    for number in range(STEPS):
        if number % 3 == 0:
            model.train()
        at(model, optimizer, number)
        for micro_step in range(schedule.micro_steps):
            model(X + micro_step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=schedule.to_none)
    return model


def written_in(schedule: Schedule) -> Model:
    """The schedule in the source, as one writes it with all that a freeze takes."""
    held = {"norm": False}

    def at(model: Model, optimizer: torch.optim.Optimizer, number: int) -> None:
        norm = model.body[1]
        for step, part, trains in schedule.changes:
            if step != number:
                continue
            target = model.get_submodule(part) if part != "body.1.weight" else None
            parameters = list(target.parameters()) if target is not None else [norm.weight]
            changed = [parameter for parameter in parameters if parameter.requires_grad is not trains]
            for parameter in changed:
                parameter.requires_grad_(trains)
                parameter.grad = None
                owned = any(parameter is own for own in optimizer.param_groups[0]["params"])
                if trains and not owned:
                    optimizer.param_groups[0]["params"].append(parameter)
            frozen = not any(parameter.requires_grad for parameter in norm.parameters())
            if not trains and frozen and (part in ("body", "body.1", "body.1.weight")):
                held["norm"] = True
            if trains and not frozen:
                held["norm"] = False
        norm.train(not held["norm"])

    return train(schedule, at)


def commanded(schedule: Schedule) -> Model:
    with watched(budget=0.0 if schedule.micro_steps == 1 else 100.0) as seen:

        def at(model: Model, optimizer: torch.optim.Optimizer, number: int) -> None:
            for step, part, trains in schedule.changes:
                if step == number:
                    seen.submit(lambda id_, p=part, t=trains: SetTrainable(id_, p, t))

        model = train(schedule, at)
    # Only what is so already may be refused.
    assert all("is already" in event.reason for event in seen.all(CommandRejected))
    return model


def everything(model: nn.Module) -> dict[str, tuple[float, ...]]:
    return {name: tuple(tensor.double().view(-1).tolist()) for name, tensor in model.state_dict().items()}


@given(schedules)
def test_toggled_run_is_script_with_schedule_in_it(schedule: Schedule) -> None:
    assert everything(commanded(schedule)) == everything(written_in(schedule))


def test_a_schedule_matters() -> None:
    """The models of different schedules do differ: the equality above is no triviality."""
    ends = {
        str(everything(written_in(Schedule("adam", True, 1, changes))))
        for changes in ((), ((2, "stem", False),), ((2, "body", False),), ((2, "body", False), (8, "body", True)))
    }
    assert len(ends) == 4
