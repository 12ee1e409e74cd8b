"""Warnings name the caller that they name under plain python, however many of our frames lie between.

A script warns with each stack level from every place that runs below a wrapper. File, line and module of each warning are
compared with those of the same script without a probe.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from helpers.watched import Watched, watched
from torch import nn

from gradtui.probe.steps import hook_buffer
from gradtui.protocol.commands import SetCheckpointing, SetTrainable
from gradtui.protocol.events import CommandApplied
from gradtui.system.own_frames import hide, is_hidden

SCRIPT_FILE = "/home/person/train.py"
SCRIPT = """
import warnings
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

loud = False

def say(place):
    if loud:
        for level in range(1, 10):
            warnings.warn(f"{place} {level}", stacklevel=level + 1)

def noisily(values, place):
    for value in values:
        say(place)
        yield value

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
    def forward(self, x):
        say("nested forward" if torch._C._current_graph_task_id() == -1 else "computed again")
        return self.norm(self.linear(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Inner(), nn.Tanh())
        self.last = Inner()
    def forward(self, x):
        say("forward")
        return self.last(checkpoint(self.blocks, x, use_reentrant=False))
    def parameters(self, recurse=True):
        say("zero_grad")
        return super().parameters(recurse)

class Loss(nn.Module):
    def forward(self, y):
        say("loss")
        return y.square().sum()

class Sgd(torch.optim.SGD):
    def step(self, closure=None):
        say("step")
        loss = closure() if closure is not None else None
        super().step()
        return loss

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        say("data set")
        return torch.full((4,), float(index))

def collate(rows):
    say("collate")
    return torch.stack(rows)

class Values(list):
    def __iter__(self):
        return noisily(super().__iter__(), "scale")

model, loss_function = Model(), Loss()
optimizer = Sgd(model.parameters(), lr=0.01)

def step():
    optimizer.zero_grad()
    (x,) = DataLoader(Data(), batch_size=6, collate_fn=collate)
    loss = loss_function(model(x))
    loss.register_hook(lambda gradient: say("backward hook"))
    loss.backward()
    optimizer.step()

def loud_step():
    global loud
    loud = True
    model.last.register_full_backward_hook(lambda *given: say("full backward hook"))
    model.blocks[0].register_full_backward_hook(lambda *given: say("full backward hook"))
    model.last.register_forward_hook(lambda *given: say("forward hook"))
    step()
    model.last.linear(torch.ones(2, 4)).sum().backward()
    model.zero_grad()
    torch.nn.utils.clip_grad_norm_(noisily(model.parameters(), "clip"), 1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(Values([loss_function(model(torch.ones(2, 4)))]))[0].backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.step(lambda: loss_function(model(torch.ones(2, 4))).backward())
    torch.autograd.grad(loss_function(model(torch.ones(2, 4))), noisily(model.last.parameters(), "grad"))
    with torch.no_grad():
        model.eval()(torch.ones(2, 4))
    torch.optim.SGD(noisily(nn.Linear(2, 2).parameters(), "optimizer"), lr=0.1)
    torch.amp.GradScaler("cuda")
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
    scheduler.step()
    optimizer.register_load_state_dict_pre_hook(lambda *given: say("load state"))
    optimizer.load_state_dict(optimizer.state_dict())
    full_hook = nn.Linear(2, 2)
    full_hook.register_full_backward_hook(lambda *given: say("without inputs"))
    full_hook(torch.ones(1, 2)).sum().backward()
    torch.ones(1, 2, 3).T
    loud = False
"""

PLACES = {
    "nested forward", "computed again", "forward", "zero_grad", "loss", "step", "data set", "collate", "scale",
    "backward hook", "clip", "grad", "full backward hook", "forward hook", "optimizer", "without inputs",
    "load state",
}  # fmt: skip

Said = tuple[str, str, int, str]
"""What a warning says, the file and line that it names, and the module that filters ask about."""


class Asked:
    """The module pattern of a filter: matches every module, and notes which it was asked about."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def match(self, module: str) -> bool:
        self.modules.append(module)
        return True


Mode = Callable[[ExitStack, pytest.MonkeyPatch], Callable[[], None]]
"""Puts a probe on; what it returns is called after a step."""


def said(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> list[Said]:
    """All warnings of the script's loud step."""
    asked = Asked()
    namespace: dict[str, Any] = {"__name__": "train"}
    torch.manual_seed(0)
    with ExitStack() as stack:
        begin = mode(stack, monkeypatch)
        exec(compile(SCRIPT, SCRIPT_FILE, "exec"), namespace)
        for turn in range(16):
            namespace["step"]()
            begin() if turn == 2 else None
        torch.set_warn_always(True)
        stack.callback(torch.set_warn_always, False)
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        warnings.filters.insert(0, ("always", None, Warning, asked, 0))  # type: ignore[attr-defined]
        namespace["loud_step"]()
    assert len(asked.modules) == len(caught)
    return [
        (str(each.message)[:60], each.filename, each.lineno, module)
        for each, module in zip(caught, asked.modules, strict=True)
    ]


def nothing() -> None:
    """Do nothing after that step."""


def plain(stack: ExitStack, _: pytest.MonkeyPatch) -> Callable[[], None]:
    return nothing


def examined(stack: ExitStack, _: pytest.MonkeyPatch) -> Callable[[], None]:
    stack.enter_context(watched())
    return nothing


def marked(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.setattr(hook_buffer, "_FLUSH_NS", 10**15)
    probe = stack.enter_context(watched(budget=0.0)).probe
    probe.step_sampler._cadence._warmup = 2
    return nothing


def inactive(stack: ExitStack, _: pytest.MonkeyPatch) -> Callable[[], None]:
    """As in a forked child."""
    hooks = stack.enter_context(watched()).probe.hooks
    return lambda: setattr(hooks, "active", False)


def wrapped_before(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Another tool has wrapped the call of modules before us, by a function that is hidden as ours are."""
    original = nn.Module.__call__
    monkeypatch.setattr(nn.Module, "__call__", hide(lambda self, *args, **kwargs: original(self, *args, **kwargs)))
    return examined(stack, monkeypatch)


def commanded(stack: ExitStack, command: Callable[[int], Any]) -> Callable[[], None]:
    seen = stack.enter_context(watched())
    stack.callback(lambda: seen.probe.report() or _check_applied(seen))
    return lambda: seen.submit(command) and None


def _check_applied(seen: Watched) -> None:
    assert len(seen.all(CommandApplied)) == 1


def held(stack: ExitStack, _: pytest.MonkeyPatch) -> Callable[[], None]:
    """What collects statistics is frozen, and held while the model runs."""
    return commanded(stack, lambda id_: SetTrainable(id_, "blocks.0.norm", False))


def while_checkpointed(stack: ExitStack, _: pytest.MonkeyPatch) -> Callable[[], None]:
    return commanded(stack, lambda id_: SetCheckpointing(id_, "last", True))


MODES = (examined, marked, inactive, wrapped_before, held, while_checkpointed)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
def test_warnings_name_what_they_name_under_plain_python(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, found = said(plain, monkeypatch), said(mode, monkeypatch)
    assert {text.rsplit(" ", 1)[0] for text, *_ in expected} >= PLACES
    of_torch = {(file, module) for text, file, _, module in expected if text.startswith("Full backward hook is firing")}
    assert of_torch == {(SCRIPT_FILE, "train")}
    if mode is while_checkpointed:
        expected, found = ([each for each in side if "computed again" not in each[0]] for side in (expected, found))
    assert found == expected


def test_replaced_torch_functions_are_hidden_or_named() -> None:
    with watched() as seen:
        for _, _, original, ours, _ in seen.probe.hooks._patches:
            assert is_hidden(ours.__code__) or ours.__code__.co_filename == original.__code__.co_filename
