"""Scripts made of random pieces: whatever a script does, its bits are its own, and the counts and phases are true."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from helpers.examples import examples
from helpers.watched import Watched, watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradtui.protocol.events import MemoryMeasured, SavedBytesMeasured
from gradtui.protocol.vocabulary import MEMORY_CATEGORIES

X = torch.linspace(-1, 1, 24).view(6, 4)


class Script:
    """Two models, two optimizers, and what a person may do with them in whatever order."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 4))
        self.second = nn.Linear(4, 2)
        self.one = torch.optim.SGD(self.first.parameters(), lr=0.01, momentum=0.9)
        self.two = torch.optim.Adam(self.second.parameters(), lr=0.01)
        self.criterion = nn.MSELoss()
        self.loss: Tensor | None = None
        self.steps = self.backwards = 0

    def forward(self) -> None:
        output = self.second(self.first(X))
        self.loss = self.criterion(output, torch.zeros_like(output))

    def forward_of_one(self) -> None:
        self.loss = self.first(X).square().mean()

    def forward_checkpointed(self) -> None:
        self.loss = self.second(checkpoint(self.first, X, use_reentrant=False)).square().mean()

    def forward_without_gradient(self) -> None:
        with torch.no_grad():
            self.second(self.first(X))

    def backward(self, *, keep_graph: bool = False) -> None:
        if self.loss is None or not self.loss.requires_grad:
            return
        self.backwards += 1
        # Where an optimizer has stepped since the forward, autograd refuses.
        with contextlib.suppress(RuntimeError):
            self.loss.backward(retain_graph=keep_graph)
        if not keep_graph:
            self.loss = None

    def backward_keeping_the_graph(self) -> None:
        self.backward(keep_graph=True)

    def grad(self) -> None:
        if self.loss is not None and self.loss.requires_grad:
            with contextlib.suppress(RuntimeError):
                torch.autograd.grad(self.loss, list(self.second.parameters()), retain_graph=True, allow_unused=True)

    def step_one(self) -> None:
        self.one.step()
        self.steps += 1

    def step_two(self) -> None:
        self.two.step()
        self.steps += 1

    def step_with_closure(self) -> None:
        def closure() -> float:
            self.one.zero_grad()
            self.forward_of_one()
            self.backward()
            return 0.0

        self.one.step(closure)
        self.steps += 1

    def clear(self) -> None:
        self.one.zero_grad()
        self.second.zero_grad(set_to_none=False)

    def train(self) -> None:
        self.first.train()

    def evaluate(self) -> None:
        self.first.eval()

    def freeze(self) -> None:
        self.first[0].requires_grad_(False)

    def unfreeze(self) -> None:
        self.first[0].requires_grad_(True)

    def fail_in_forward(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.second(X[:, :3])

    def fail_in_backward(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.backwards += 1
            X.sum().backward()

    def fail_in_step(self) -> None:
        rate = self.two.param_groups[0]["lr"]
        self.two.param_groups[0]["lr"] = None
        with contextlib.suppress(TypeError):
            self.two.step()
            self.steps += 1
        self.two.param_groups[0]["lr"] = rate

    def new_optimizer(self) -> None:
        self.two = torch.optim.Adam(self.second.parameters(), lr=0.01)

    def new_model(self) -> None:
        self.second = nn.Linear(4, 2)
        self.new_optimizer()
        self.loss = None


ACTS = [name for name, value in vars(Script).items() if callable(value) and not name.startswith("_")]
COMMON = ["forward", "backward", "step_one", "step_two", "clear"]


def run(acts: list[str]) -> tuple[Script, dict[str, object]]:
    script = Script()
    for act in acts:
        do: Callable[[], None] = getattr(script, act)
        do()
    state = {
        "first": [tensor.tolist() for tensor in script.first.state_dict().values()],
        "second": [tensor.tolist() for tensor in script.second.state_dict().values()],
        "grads": [None if p.grad is None else p.grad.tolist() for p in script.first.parameters()],
        "random": torch.get_rng_state().tolist(),
    }
    return script, state


def check(seen: Watched, script: Script) -> None:
    assert (seen.state.step, seen.state.micro_steps) == (script.steps, script.backwards)
    assert sum(seen.state.optimizer_steps) == script.steps
    seen.check_that_phases_fill_the_time()
    for ledger in seen.all(MemoryMeasured):
        assert sum(getattr(ledger.held, category) or 0 for category in MEMORY_CATEGORIES) == ledger.held.total
    for saved in seen.all(SavedBytesMeasured):
        assert sum(saved.by_module) <= saved.total
    tree = seen.state.tree
    assert len(tree.states) == len(tree.trainable) == len(tree.parameters)


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.sampled_from(COMMON), st.sampled_from(ACTS)), max_size=40))
def test_any_script(acts: list[str]) -> None:
    _, alone = run(acts)
    with watched() as seen:
        script, ours = run(acts)
    assert ours == alone
    check(seen, script)
