"""The program of one rank: it trains each case plainly, as a script that is written that way, and with commands to all ranks.

`steered_ranks.py CASE…` prints a line of JSON for each case: the digests of the three runs (with `plain` instead of what is
written that way where the commands change no weights), and what the commands have come to. A proposal is confirmed on rank 0
only: the other ranks learn of it at the step.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from helpers.watched import ScriptedCommands, watched
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gradtui.protocol.agreement import Confirmation, Proposal
from gradtui.protocol.commands import (
    Command,
    KeepState,
    Resume,
    ReturnToState,
    SetBreakpoint,
    SetCheckpointing,
    SetGroup,
    SetMode,
    SetRowsTrainable,
    SetTrainable,
    Undo,
    ZeroGradients,
)
from gradtui.protocol.events import (
    CheckpointingChanged,
    CommandApplied,
    CommandRejected,
    Event,
    PauseChanged,
    ProposalAnswered,
    ReceiptTaken,
)

STEPS = 24


class Block(nn.Sequential):
    """On rank 1 it writes to its input, values that are there already: it cannot be checkpointed there."""

    writes = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.writes and dist.get_rank() == 1:
            x.mul_(1)
        done: torch.Tensor = super().forward(x)
        return done


def body(*, writes: bool) -> nn.Sequential:
    torch.manual_seed(0)
    block = Block(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Dropout(0.2))
    block.writes = writes
    return nn.Sequential(block, nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 4))


def ddp(**options: bool) -> Callable[[nn.Sequential], nn.Module]:
    return lambda model: DistributedDataParallel(model, **options)  # type: ignore[arg-type]


def fsdp(model: nn.Sequential) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


Wrap = Callable[[nn.Sequential], nn.Module]
Train = Callable[[nn.Sequential, Any, int], None]


@dataclass
class Case:
    wrap: Wrap
    commands: dict[int, Callable[[int], Command]]
    """By step: what all ranks are to do at the boundary after it. It is proposed two steps before."""
    by_hand: Train | None = None
    """Called before each step with the model, the optimizer and the number of steps, in the run that is written that way."""
    micro_steps: int = 1
    keeps_gradients: bool = False
    writes: bool = False


def flags(model: nn.Sequential, at: dict[int, bool], step: int, *layers: int) -> None:
    if step in at:
        for each in (each for layer in layers for each in model[layer].parameters()):
            each.requires_grad_(at[step])
            each.grad = None


def frozen_from_5_to_12(model: nn.Sequential, optimizer: Any, step: int) -> None:
    flags(model, {5: False, 12: True}, step, 2)


def all_settings(model: nn.Sequential, optimizer: Any, step: int) -> None:
    flags(model, {5: False, 8: True}, step, 2)
    if step in (10, 15):
        model[0].train(step == 15)
    if step in (12, 14):
        rate, decay = (0.002, 0.1) if step == 12 else (0.01, 0.01)
        optimizer.param_groups[0].update(lr=rate, weight_decay=decay)


def returned_at_12(model: nn.Sequential, optimizer: Any, step: int) -> None:
    """Do by hand what a state of step 5 is: weights, optimizer, gradients and random state."""
    flags(model, {8: False, 12: True}, step, 2)
    if step == 5:
        gradients = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
        optimizer.kept = copy.deepcopy((model.state_dict(), optimizer.state_dict(), torch.get_rng_state(), gradients))
    if step == 12:
        weights, state, random, gradients = optimizer.kept
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        torch.set_rng_state(random)
        for each, gradient in zip(model.parameters(), gradients):
            each.grad = gradient


def cleared(model: nn.Sequential, optimizer: Any, step: int) -> None:
    if step in (5, 9):
        for each in model.parameters():
            each.grad = None


def freezes(path: str) -> dict[int, Callable[[int], Command]]:
    return {5: lambda id_: SetTrainable(id_, path, False), 12: lambda id_: SetTrainable(id_, path, True)}


def rows_from_5_to_12(model: nn.Sequential, optimizer: Any, step: int) -> None:
    """Put back what the step before has made of the first rows of a weight and of their state."""
    weight: Any = model[2].weight
    state = [weight.detach(), *(value for value in optimizer.state[weight].values() if value.shape == weight.shape)]
    if 5 < step <= 12:
        for now, before in zip(state, optimizer.kept):
            now[:10] = before
    optimizer.kept = [each[:10].clone() for each in state]


def rows(path: str) -> dict[int, Callable[[int], Command]]:
    return {
        5: lambda id_: SetRowsTrainable(id_, path, False, "0:10"),
        12: lambda id_: SetRowsTrainable(id_, path, True, "0:10"),
    }


def checkpoints(path: str) -> dict[int, Callable[[int], Command]]:
    return {5: lambda id_: SetCheckpointing(id_, path, True), 20: lambda id_: SetCheckpointing(id_, path, False)}


CASES = {
    "freeze ddp": Case(ddp(), freezes("module.2")),
    "freeze no_sync": Case(ddp(), freezes("module.2"), micro_steps=2),
    "freeze static_graph": Case(ddp(static_graph=True), freezes("module.2")),
    "freeze find_unused": Case(ddp(find_unused_parameters=True), freezes("module.2"), frozen_from_5_to_12),
    "freeze find_unused no_sync": Case(
        ddp(find_unused_parameters=True), freezes("module.2"), frozen_from_5_to_12, micro_steps=2
    ),
    "rows ddp": Case(ddp(), rows("module.2.weight"), rows_from_5_to_12),
    "rows views no_sync": Case(
        ddp(gradient_as_bucket_view=True), rows("module.2.weight"), rows_from_5_to_12, micro_steps=2
    ),
    "rows fsdp": Case(fsdp, rows("2.weight")),
    "freeze fsdp": Case(fsdp, freezes("2"), frozen_from_5_to_12),
    "settings": Case(
        ddp(find_unused_parameters=True),
        {
            5: lambda id_: SetTrainable(id_, "module.2", False),
            8: Undo,
            10: lambda id_: SetMode(id_, "module.0", False),
            12: lambda id_: SetGroup(id_, 0, 0, 0.002, 0.1),
            14: Undo,
            15: Undo,
            16: lambda id_: SetBreakpoint(id_, "step", 18),
            19: lambda id_: SetBreakpoint(id_, "lr", 0.009),
        },
        all_settings,
    ),
    "return": Case(
        ddp(find_unused_parameters=True),
        {5: KeepState, 8: lambda id_: SetTrainable(id_, "module.2", False), 12: lambda id_: ReturnToState(id_, 5)},
        returned_at_12,
    ),
    "clear": Case(ddp(), {5: ZeroGradients, 9: ZeroGradients}, cleared, keeps_gradients=True),
    "checkpoint ddp": Case(ddp(), checkpoints("module.0")),
    "checkpoint no_sync": Case(ddp(), checkpoints("module.0"), micro_steps=2),
    "checkpoint find_unused": Case(ddp(find_unused_parameters=True), checkpoints("module.0")),
    "checkpoint static_graph": Case(ddp(static_graph=True), checkpoints("module.0")),
    "checkpoint fsdp": Case(fsdp, checkpoints("0.2")),
    "checkpoint fsdp unit": Case(fsdp, checkpoints("0")),
    "checkpoint writing": Case(ddp(), checkpoints("module.0"), writes=True),
}


def train(case: Case, before: Train) -> str:
    """Train a case and return the digest of its weights. Wherever ranks differ, their digests do."""
    model = body(writes=case.writes)
    wrapped = case.wrap(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), 0.01)
    data = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(10 + dist.get_rank())
    for step in range(STEPS):
        before(model, optimizer, step)
        if not case.keeps_gradients:
            optimizer.zero_grad()
        for number in range(case.micro_steps):
            is_last = number == case.micro_steps - 1
            with nullcontext() if is_last else wrapped.no_sync():  # type: ignore[operator, attr-defined]
                wrapped(torch.randn(8, 8, generator=data)).square().mean().backward()
        optimizer.step()
    return digest(each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.parameters())


def digest(tensors: Iterable[Any]) -> str:
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()[:16]


def steered(name: str, case: Case) -> tuple[str, list[Any]]:
    """Train a case with its commands; return the digest, and what the commands have come to."""
    commands = ScriptedCommands([lambda queue: queue.submit(Resume)] * 4)
    with watched(budget=0.01, commands=commands) as seen:
        proposals: dict[int, Proposal] = {}

        def before(_model: nn.Sequential, _optimizer: Any, step: int) -> None:
            # As with viewers, what is proposed has an id that no other proposal of the job has.
            make = case.commands.get(step + 2)
            if make is not None:
                number = 1000 * (1 + list(CASES).index(name)) + step
                proposals[step] = proposed = Proposal(number, make(number), step + 2)
                seen.submit(lambda _: proposed)
            if step - 1 in proposals and dist.get_rank() == 0:
                seen.submit(lambda id_: Confirmation(id_, proposals[step - 1].id))

        found = train(case, before)
    return found, [words for event in seen.events if (words := in_words(event))]


def in_words(event: Event) -> list[Any]:
    """What an event says of a command, as a step and words; empty for other events."""
    if isinstance(event, CommandApplied):
        return [event.step, type(event.command).__name__]
    if isinstance(event, CommandRejected):
        return [event.step, "refused", event.reason]
    if isinstance(event, ProposalAnswered) and not event.accepts:
        return [event.step, "no", event.reason]
    if isinstance(event, PauseChanged) and event.paused:
        return [event.step, "held"]
    if isinstance(event, CheckpointingChanged):
        return [event.step, "checkpointed", len(event.modules)]
    if isinstance(event, ReceiptTaken) and not event.held:
        return [event.step, "given up", event.text]
    return []


def main() -> None:
    dist.init_process_group("gloo")
    for name in sys.argv[1:]:
        case = CASES[name]
        plain = train(case, lambda *_: None)
        written = train(case, case.by_hand) if case.by_hand is not None else plain
        found, said = steered(name, case)
        print(
            json.dumps({"case": name, "plain": plain, "written": written, "steered": found, "said": said}), flush=True
        )
    dist.barrier()
    sys.stdout.flush()
    # torch may abort while it frees what belongs to a process group.
    os._exit(0)


if __name__ == "__main__":
    main()
