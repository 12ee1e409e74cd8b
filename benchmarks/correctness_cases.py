"""The cases of `correctness.py`, put to one tool: `python correctness_cases.py TOOL` prints one line of JSON, case -> verdict.

A verdict is `right`, `silent` (the tool has no word on this), `unclear` or `wrong`, and after a colon what was seen. Each tool
is read through `Readings`: its readings by path of a parameter or layer. What is right is computed here from `.grad`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from correctness_tools import TOOLS, Readings, Tool, Values
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass
class Loop:
    """A training loop over a model of three layers, watched by a tool."""

    tool: Tool
    model: nn.Module
    scaler: torch.amp.GradScaler | None = None
    micro_steps: int = 1
    change: Callable[[nn.Module, int], object] = lambda model, step: None
    true: Values = field(default_factory=dict)
    """Path -> size of the gradient that was applied in the last step, in the tool's measure; 0 for none."""
    gradients: Values = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    of_outputs: bool = False
    losses: list[float] = field(default_factory=list)

    def run(self, steps: int = 4) -> Loop:
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        x = torch.linspace(-2, 3, 48).view(12, 4).sin()
        with self.tool(self.model, optimizer) as tool:
            for number in range(steps):
                self.change(self.model, number)
                optimizer.zero_grad()
                for part in x.chunk(self.micro_steps):
                    loss = self.model(part).square().mean() / self.micro_steps
                    (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
                tool.after_backward()
                factor = self.scaler.get_scale() if self.scaler is not None else 1.0
                for path, parameter in self.model.named_parameters():
                    gradient = parameter.grad
                    self.true[path] = tool.size(gradient / factor) if gradient is not None else 0.0
                if self.scaler is not None:
                    self.scaler.step(optimizer)
                    self.scaler.update()
                else:
                    optimizer.step()
                tool.after_step(loss.detach())
                self.losses.append(loss.item())
            self.gradients, self.words, self.of_outputs = tool.gradients(), tool.words(), tool.of_outputs
        return self

    def reading_of(self, layer: str) -> tuple[float | None, str | None]:
        """What the tool says of a layer's weight, or of the layer."""
        paths = (f"{layer}.weight", layer)
        value = next((self.gradients[path] for path in paths if path in self.gradients), None)
        word = next((self.words[path] for path in paths if path in self.words), None)
        return value, word


class Net(nn.Module):
    """Three layers; `way` says what is unusual about it."""

    def __init__(self, way: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.act: nn.ReLU = nn.ReLU(inplace=way == "in place")
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = self.act(y)
        if self.way == "residual":
            z = self.middle(y)
            z += y
            y = z
        else:
            y = self.middle(y.detach() if self.way == "detach" else y)
        return cast("Tensor", self.last(y))


@contextlib.contextmanager
def no_tool(model: nn.Module, optimizer: Optimizer) -> Iterator[Readings]:
    """Watches nothing."""
    yield Readings()


def undisturbed(tool: Tool, way: str) -> str:
    """The run is that of the script alone, to the bit, and so is the model while it is watched."""
    alone = Loop(no_tool, Net(way)).run()
    in_place: list[bool] = []
    seen = Loop(tool, Net(way), change=lambda model, _: in_place.append(cast("Net", model).act.inplace)).run()
    if seen.losses != alone.losses:
        return f"wrong: other losses, {seen.losses[-1]} for {alone.losses[-1]}"
    if not all(in_place) and way == "in place":
        return "wrong: sets inplace to False while it watches"
    return "right"


def unfrozen_later(tool: Tool) -> str:
    """The first layer is frozen when the tool comes in, and unfrozen after two steps."""
    model = Net()
    model.first.requires_grad_(False)
    loop = Loop(tool, model, change=lambda model, step: model.first.requires_grad_(step >= 2)).run()
    value, word = loop.reading_of("first")
    if value is None and word is None:
        return "silent" if not loop.gradients else "wrong: never shows it, but shows the others"
    if value:
        return "right" if not loop.of_outputs else "right: of the layer's output"
    return f"wrong: {value} {word or ''}".strip()


def frozen_marked(tool: Tool) -> str:
    """The middle layer is frozen, between two that train."""
    model = Net()
    model.middle.requires_grad_(False)
    value, word = (loop := Loop(tool, model).run()).reading_of("middle")
    if word is not None:
        return f"{'right' if 'frozen' in word.lower() else 'wrong'}: {word}"
    if value is not None:
        return f"wrong: a gradient of {value:.3g}" + (", of its output" if loop.of_outputs else "")
    return "silent"


def unscaled(tool: Tool) -> str:
    """Behind a loss scaler of 1,024, gradients are shown as they are applied."""
    loop = Loop(tool, Net(), scaler=torch.amp.GradScaler("cpu", init_scale=1024.0)).run()
    plain = Loop(tool, Net()).run()
    value, _ = loop.reading_of("middle")
    expected, _ = plain.reading_of("middle")
    if value is None or not expected:
        more = sorted(word[:5] for path, word in loop.words.items() if path not in plain.words)
        return f"wrong: {more}" if more else "silent"
    return "right" if abs(value / expected - 1) < 0.01 else f"wrong: {value / expected:.0f} times too large"


def accumulated(tool: Tool) -> str:
    """Two micro-steps a step: what is shown is the gradient that is applied."""
    loop = Loop(tool, Net(), micro_steps=2).run()
    value, _ = loop.reading_of("middle")
    if value is None:
        return "silent"
    true = loop.true["middle.weight"]
    if loop.of_outputs:
        return f"wrong: of the output in the last micro-step, {value:.3g} (applied to the weight: {true:.3g})"
    return "right" if abs(value / true - 1) < 0.01 else f"wrong: {value:.3g} for {true:.3g}, the last micro-step's"


def detached(tool: Tool) -> str:
    """What the first layer computes is detached: it is trainable, and no gradient comes to it."""
    value, word = Loop(tool, Net("detach")).run().reading_of("first")
    if word is not None:
        return f"{'right' if word == 'unreached' or 'no grad' in word.lower() else 'unclear'}: {word}"
    if value is None:
        return "silent"
    return f"wrong: a gradient of {value:.3g}" if value else "unclear: a gradient of zero, where there is none"


CASES: dict[str, Callable[[Tool], str]] = {
    "in-place ReLU": lambda tool: undisturbed(tool, "in place"),
    "residual +=": lambda tool: undisturbed(tool, "residual"),
    "unfrozen later": unfrozen_later,
    "frozen is marked": frozen_marked,
    "AMP unscaled": unscaled,
    "accumulation": accumulated,
    "detach": detached,
}


def verdicts(name: str) -> dict[str, str]:
    """Every case, put to one tool."""
    found = {}
    for case, put_to in CASES.items():
        try:
            found[case] = put_to(TOOLS[name])
        except Exception as error:  # noqa: BLE001 - what a tool makes of the model is what is asked
            found[case] = f"wrong: the script fails, {type(error).__name__}: {str(error).splitlines()[0][:80]}"
    return found


if __name__ == "__main__":
    print(json.dumps(verdicts(sys.argv[1])))
