"""The tools of `correctness.py` that say something of gradients, each used as its package documents it, as a `Readings`.

All are made for one training a process; here each watches several, one after the other.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

Values = dict[str, float]


@dataclass
class Readings:
    """How a tool is called by the loop, and what it says.

    Attributes:
        gradients: path -> how large the gradient is, by the tool.
        words: path -> what the tool calls the state of the parameter or layer.
        size: how large a gradient is in the tool's measure, to compare with.
        of_outputs: whether its gradients are those of the outputs of layers, and no parameter's.
        after_backward, after_step: what the loop has to call.
    """

    gradients: Callable[[], Values] = dict
    words: Callable[[], dict[str, str]] = dict
    size: Callable[[Tensor], float] = lambda gradient: gradient.norm().item()
    of_outputs: bool = False
    after_backward: Callable[[], object] = lambda: None
    after_step: Callable[[Tensor], object] = lambda loss: None


Tool = Callable[[nn.Module, Optimizer], AbstractContextManager[Readings]]
TOOLS: dict[str, Tool] = {}


def tool(follow: Callable[[nn.Module, Optimizer], Iterator[Readings]]) -> Tool:
    """Enter a tool into the table."""
    TOOLS[follow.__name__] = contextlib.contextmanager(follow)
    return TOOLS[follow.__name__]


@tool
def gradtui(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    from gradtui import watch

    words = {
        "F": "frozen, flow-through",
        "C": "frozen, cut",
        "U": "unreached",
        "O": "orphan",
        "T": "trained",
        "Z": "zero",
    }
    with watch(model, optimizer, progress=False, budget=1.0) as seen:

        def rows(key: str) -> dict[str, Any]:
            return {row["path"]: row[key] for row in seen.summary()["parameters"] if row[key] is not None}

        yield Readings(
            lambda: rows("gradient_norm"), lambda: {path: words.get(s, s) for path, s in rows("state").items()}
        )


@tool
def by_hand(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    norms: Values = {}

    def look() -> None:
        norms.clear()
        norms.update({path: p.grad.norm().item() for path, p in model.named_parameters() if p.grad is not None})

    yield Readings(lambda: dict(norms), after_backward=look)


@tool
def wandb(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    package = importlib.import_module("wandb")
    run = package.init(mode="offline", settings=package.Settings(console="off", silent=True))
    run.watch(model, log="gradients", log_freq=1)
    shown: Values = {}
    history, show = run._torch, run._torch.log_tensor_stats

    def noted(tensor: Tensor, name: str) -> None:
        # Every model after the first one of a process gets a prefix.
        shown[re.sub(r"^gradients/(graph_\d+)?", "", name)] = tensor.abs().max().item()
        show(tensor, name)

    history.log_tensor_stats = noted
    yield Readings(
        lambda: dict(shown),
        size=lambda gradient: gradient.abs().max().item(),
        after_step=lambda loss: (run.log({"loss": loss.item()}), None)[1],
    )
    run.finish()


@tool
def nn_htop(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    package = importlib.import_module("nn_htop")
    badge = importlib.import_module("nn_htop.ui")._get_health_badge
    with package.Monitor(model) as monitor:

        def gradients() -> Values:
            return {path: stats.grad_norm for path, stats in monitor.get_stats().items()}

        def words() -> dict[str, str]:
            return {
                path: badge(stats.mean_activation, stats.grad_norm, stats.layer_type).plain
                for path, stats in monitor.get_stats().items()
            }

        yield Readings(gradients, words, of_outputs=True)


@tool
def torchmortem(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    package = importlib.import_module("torchmortem")
    autopsy = package.Autopsy(model, optimizer=optimizer, sampling="thorough")
    autopsy.attach()
    collector = next(collector for collector in autopsy._collectors if collector.name == "gradient")

    def gradients() -> Values:
        state = collector.state()
        return dict(zip(state.layers, state.series["grad_norm"][-1])) if len(state.steps) else {}

    yield Readings(gradients, of_outputs=True, after_step=lambda loss: autopsy.step(loss=loss.item()))
    for part in autopsy._collectors:
        part.detach()
    autopsy._attached = False


@tool
def torch_audit(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    package = importlib.import_module("torch_audit")
    with package.autopatch(model, optimizer=optimizer, every_n_steps=1, reporters=[]) as auditor:

        def words() -> dict[str, str]:
            found: dict[str, str] = {}
            for finding in auditor.runner.findings:
                if not finding.rule_id.startswith(("TA1", "TA5")):
                    continue  # it says nothing of gradients or of what is used
                entity = (finding.entity or "").partition(":")[2]
                path = ".".join(part for part in (finding.module_path, entity) if part and part != "global")
                found[path or "model"] = f"{finding.rule_id} {finding.message}"
            return found

        yield Readings(words=words)
