"""When `gradtui.watch` is closed nothing of it is left: not in torch, not on the script's objects, not in the process."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import gradtui
from gradtui.protocol import commands as cmd

X = torch.linspace(-1, 1, 96).view(24, 4)

# What is made when it is first needed, and stays: torch's own.
LAZY = {"torch.autograd.graph._engine_run_backward"}


def names_of(owner: object) -> Mapping[str, Any]:
    """What an owner holds under which names, without running any code of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(vars(owner))


def everything_in_torch() -> dict[tuple[str, str], object]:
    """Every name in every module and class of torch that is imported, with what it stands for."""
    found: dict[tuple[str, str], object] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] != "torch" or not isinstance(module, ModuleType):
            continue
        for name, value in names_of(module).items():
            found[module_name, name] = value
            if issubclass(type(value), type) and value.__module__ == module_name:
                for inner, held in names_of(value).items():
                    found[f"{module_name}.{name}", inner] = held
    return found


def hook_tables() -> dict[str, list[object]]:
    """The global tables of hooks: their contents, since the tables themselves stay."""
    from torch.optim import optimizer

    module = sys.modules["torch.nn.modules.module"]
    return {
        f"{holder.__name__}.{name}": list(value.keys())
        for holder in (module, optimizer)
        for name, value in vars(holder).items()
        if name.startswith("_global_") and hasattr(value, "keys")
    }


def process() -> dict[str, object]:
    """What of the process others may rely on."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "files": len(psutil.Process().open_files()),
        "handlers": handlers,
        "hooks": (sys.excepthook, sys.displayhook, threading.excepthook, sys.gettrace(), sys.getprofile()),
        "finders": list(map(id, sys.meta_path)),
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "saved": torch._C._autograd._saved_tensors_hooks_is_enabled(),
        "collector": list(map(id, gc.callbacks)),
    }


def of_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """Every name on the script's objects, and all their hooks."""
    found: dict[str, object] = {"optimizer": sorted(vars(optimizer)), "state": sorted(vars(type(optimizer)))}
    for path, module in model.named_modules():
        found[path] = sorted(vars(module))
        found[f"{path} hooks"] = {name: len(held) for name, held in vars(module).items() if "hooks" in name}
    for path, parameter in model.named_parameters():
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
        found[path] = (sorted(vars(parameter)), parameter._backward_hooks, len(hooks or ()))
    return found


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(self.layers, x, use_reentrant=False)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, at: Callable[[int], None] = lambda _: None) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loader = DataLoader(TensorDataset(X), batch_size=6)
    for number in range(4):
        for (batch,) in loader:
            at(number)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(batch).float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()


ASKED: dict[int, list[Callable[[int], cmd.Command]]] = {
    0: [cmd.TraceStep, lambda id_: cmd.TraceGradient(id_, "0")],
    1: [lambda id_: cmd.SetTrainable(id_, "0", False, "offload"), lambda id_: cmd.SetCheckpointing(id_, "1", True)],
    2: [lambda id_: cmd.PauseAtBadStep(id_, True), lambda id_: cmd.SetMode(id_, "1.layers.1", False), cmd.VerifyFreeze],
}


@pytest.mark.parametrize("ends", ["closed", "by an error"])
def test_nothing_is_left(ends: str) -> None:
    torch.manual_seed(0)
    warm = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
    with gradtui.watch(warm, progress=False):
        # What torch and we import when it is first needed is there from now on.
        train(warm, torch.optim.AdamW(warm.parameters(), lr=0.01))
    model = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer)
    before, tables, around, own = everything_in_torch(), hook_tables(), process(), of_model(model, optimizer)
    asked = {number: list(made) for number, made in ASKED.items()}
    try:
        with gradtui.watch(model, optimizer, progress=False) as watched:
            changed = {key for key, value in everything_in_torch().items() if before.get(key, value) is not value}
            assert ("torch.nn.modules.module.Module", "__call__") in changed

            def ask(number: int) -> None:
                for make in asked.pop(number, []):
                    watched._commands.submit(make)

            train(model, optimizer, ask)
            if ends == "by an error":
                model(X[:, :3])
    except RuntimeError:
        assert ends == "by an error"
    assert not asked
    after = everything_in_torch()
    different = [key for key in before if after.get(key) is not before[key] and ".".join(key) not in LAZY]
    assert [key for key in different if not isinstance(before[key], (int, float, str, bool, type(None)))] == []
    assert {key for key in after if key not in before and key[0] in {owner for owner, _ in before}} == set()
    assert hook_tables() == tables
    assert process() == around
    model[0].requires_grad_(True)
    assert of_model(model, optimizer) == own
