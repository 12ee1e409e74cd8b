"""A run without torch: a source that plays events, a sink that records commands, and factories of events."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradtui.protocol import events as ev
from gradtui.protocol.commands import Command
from gradtui.protocol.vocabulary import (
    GradientHop,
    MemoryBytes,
    ModelInfo,
    ModuleInfo,
    OptimizerInfo,
    ParameterInfo,
    Phase,
)
from gradtui.run.state.findings import Finding, Level, Status
from gradtui.transport.text_styles import StyledLine

MIB = 1024 * 1024


class ScriptedSource:
    """Hands out the events that it was given."""

    def __init__(self, events: Iterable[ev.Event] = ()) -> None:
        self._waiting = deque(events)
        self.dropped = 0

    def put(self, *events: ev.Event) -> None:
        self._waiting.extend(events)

    def drain(self, limit: int) -> Sequence[ev.Event]:
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    def seen(self, events: Sequence[ev.Event]) -> None:
        """No other viewer follows."""


class RecordingSink:
    """Remembers what was submitted."""

    def __init__(self) -> None:
        self.submitted: list[Command] = []

    def submit(self, make: Callable[[int], Command]) -> Command:
        command = make(len(self.submitted) + 1)
        self.submitted.append(command)
        return command


class PrintedLog:
    """An output log that a test writes to."""

    def __init__(self, *lines: str) -> None:
        self.lines: list[str] = list(lines)
        self._changed = bool(lines)

    @property
    def styled_lines(self) -> list[StyledLine]:
        return [StyledLine(line) for line in self.lines]

    def add(self, *lines: str) -> None:
        self.lines.extend(lines)
        self._changed = True

    def poll(self) -> bool:
        changed, self._changed = self._changed, False
        return changed


@dataclass
class Node:
    """A module to be: its own parameters by name and shape, and its children."""

    name: str
    type_name: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...] = ()
    children: tuple[Node, ...] = ()


def found(root: Node, *, at: float = 0.5, step: int = 0, tied: dict[str, str] | None = None) -> ev.ModelsFound:
    """The event that announces one model. `tied` maps a parameter's path to a second name of it."""
    modules: list[ModuleInfo] = []
    parameters: list[ParameterInfo] = []

    def visit(node: Node, path: str, depth: int, parent: int) -> int:
        index = len(modules)
        modules.append(ModuleInfo(path, node.name, node.type_name, depth, parent, len(parameters), 0, 0, 0))
        first = len(parameters)
        for name, shape in node.parameters:
            own = f"{path}.{name}" if path else name
            count = 1
            for size in shape:
                count *= size
            names = (own, tied[own]) if tied and own in tied else (own,)
            parameters.append(ParameterInfo(own, names, shape, "float32", count, 4 * count, index))
        size = 1 + sum(
            visit(child, f"{path}.{child.name}" if path else child.name, depth + 1, index) for child in node.children
        )
        modules[index] = ModuleInfo(
            path, node.name, node.type_name, depth, parent, first, len(node.parameters), len(parameters) - first, size
        )
        return size

    visit(root, "", 0, -1)
    return ev.ModelsFound(at, step, (ModelInfo(root.type_name, root.type_name, 0),), tuple(modules), tuple(parameters))


def _linear(name: str, inputs: int, outputs: int) -> Node:
    return Node(name, "Linear", (("weight", (outputs, inputs)), ("bias", (outputs,))))


def _norm(name: str, width: int) -> Node:
    return Node(name, "LayerNorm", (("weight", (width,)), ("bias", (width,))))


def _block(name: str, width: int) -> Node:
    attention = Node(
        "attn", "MultiheadAttention", (("in_proj_weight", (3 * width, width)), ("in_proj_bias", (3 * width,))),
        (_linear("out_proj", width, width),),
    )  # fmt: skip
    mlp = Node(
        "mlp", "Sequential", (), (_linear("0", width, 4 * width), Node("1", "GELU"), _linear("2", 4 * width, width))
    )
    return Node(name, "TransformerBlock", (), (_norm("ln_1", width), attention, _norm("ln_2", width), mlp))


def coop_model(blocks: int = 8, width: int = 256) -> ev.ModelsFound:
    """A CLIP-like pair of encoders with a learned prompt in front of the text encoder."""
    text = Node(
        "text_encoder", "TextEncoder", (("positional_embedding", (16, width)), ("text_projection", (width, width))),
        (
            Node("token_embedding", "Embedding", (("weight", (512, width)),)),
            Node("blocks", "ModuleList", (), tuple(_block(str(i), width) for i in range(blocks))),
            _norm("ln_final", width),
        ),
    )  # fmt: skip
    image = Node(
        "image_encoder", "ImageEncoder", (),
        (
            Node("conv1", "Conv2d", (("weight", (32, 1, 3, 3)), ("bias", (32,)))),
            Node("bn1", "BatchNorm2d", (("weight", (32,)), ("bias", (32,)))),
            Node("conv2", "Conv2d", (("weight", (64, 32, 3, 3)), ("bias", (64,)))),
            _linear("fc", 1024, width),
        ),
    )  # fmt: skip
    root = Node("CoOp", "CoOp", (("ctx", (4, width)), ("logit_scale", ())), (text, image))
    return found(root, tied={"text_encoder.token_embedding.weight": "text_encoder.head.weight"})


def coop_states(model: ev.ModelsFound) -> tuple[str, str]:
    """State letters and flags: the prompt trains, the text encoder is flow-through, the image encoder is cut."""
    letters = ""
    for info in model.parameters:
        letters += "T" if info.path == "ctx" else "C" if info.path.startswith("image") or "." not in info.path else "F"
    return letters, "".join("1" if letter == "T" else "0" for letter in letters)


def coop_gradient_flow(model: ev.ModelsFound, step: int) -> ev.GradientFlowMeasured:
    """Backward runs through the text encoder to the prompt, and never into the image encoder."""
    reach = "".join(
        "e" if m.parent < 0 else "-" if m.path.startswith("image") else "p" for m in model.modules
    )  # fmt: skip
    count = len(model.modules)
    ctx = next(info for info in model.parameters if info.path == "ctx")
    return ev.GradientFlowMeasured(1.0, step, 0, reach, "g" * count, "1" * count, tuple(range(count)), (ctx.bytes,))


def coop_upstream(model: ev.ModelsFound) -> tuple[int, ...]:
    """The prompt is upstream of all that the text encoder does."""
    ctx = next(i for i, info in enumerate(model.parameters) if info.path == "ctx")
    return tuple(ctx if m.path.startswith("text") else -1 for m in model.modules)


def started(script: str = "demos/coop_like.py", ledger: str = "cpu ledger") -> ev.RunStarted:
    return ev.RunStarted(0.0, 0, script, (), 4242, "cpu", ledger, "2.13.0", "/tmp/run.log")


def held(parameters: int, gradients: int, optimizer: int, activations: int | None, other: int = MIB) -> MemoryBytes:
    known = parameters + gradients + optimizer + (activations or 0) + 200_000
    return MemoryBytes(parameters, 200_000, gradients, optimizer, activations, other, known + other)


def ledgers(at: float, step: int, activations: int = 38 * MIB, gradients: int = 8192) -> list[ev.Event]:
    """One step's ledgers, phase by phase."""
    parameters, optimizer = 26 * MIB, 2 * gradients
    full = held(parameters, 0, optimizer, activations)
    after = held(parameters, gradients, optimizer, 0)
    rest = held(parameters, 0, optimizer, 0)
    most = (full.total or 0) + 6 * MIB
    return [
        ev.MemoryMeasured(at, step, Phase.FORWARD, full, most, False, True),
        ev.MemoryMeasured(at, step, Phase.BACKWARD, after, most, True, True),
        ev.MemoryMeasured(at, step, Phase.OPTIMIZER, after, (after.total or 0) + MIB, True, True),
        ev.MemoryMeasured(at, step, Phase.ZERO_GRAD, rest, None, True, True),
    ]


def wobble(step: int, salt: int = 0) -> float:
    """A number in [0, 1) that looks random and is the same every time."""
    return ((step * 2654435761 + salt * 40503) & 0xFFFFFFFF) % 1000 / 1000


def norms_at(model: ev.ModelsFound, states: str, step: int) -> tuple[float | None, ...]:
    size = 0.3 / (1 + step / 60)
    slow = 1 + 0.3 * math.sin(step / 7)
    return tuple(size * slow * (0.9 + 0.2 * wobble(step, i)) if s in "TZ" else None for i, s in enumerate(states))


def training_step(model: ev.ModelsFound, states: str, step: int, *, own_us: float = 38.0) -> list[ev.Event]:
    """Everything that one step of the CoOp-like run reports."""
    at = 1.0 + step / 24.1
    norms = norms_at(model, states, step)
    total = sum(norm * norm for norm in norms if norm is not None) ** 0.5
    phases = (
        ev.PhaseTime(Phase.FORWARD, 0.018, 1),
        ev.PhaseTime(Phase.BACKWARD, 0.021, 1),
        ev.PhaseTime(Phase.OPTIMIZER, 0.0025, 1),
    )
    return [
        ev.Progress(at, step, 1, 1, 0, (1,), phases, own_us / 1e6, 1, 1),
        ev.GradientsMeasured(at, step, total, 2.3 / (1 + step / 40) + 0.03 * wobble(step), norms),
        *(ledgers(at, step) if step % 4 == 1 else ()),
        ev.PhaseSampled(at, step, Phase.BACKWARD),
    ]


GIB = 1024 * MIB


def device_sample(at: float = 2.0, step: int = 40, *, process: int | None = 14 * GIB) -> ev.DeviceSampled:
    """A CUDA device on which the driver sees 14 GiB of this process, and torch has allocated 9.1 of them."""
    allocated, reserved = 9 * GIB + 100 * MIB, 12 * GIB + 300 * MIB
    return ev.DeviceSampled(
        at, step, "NVIDIA H100", 3 * GIB, 120 * GIB, 15 * GIB, 80 * GIB, process, allocated, reserved, 0.83,
        requested=9 * GIB, requested_peak=10 * GIB, allocated_peak=10 * GIB + 120 * MIB, reserved_peak=reserved,
        driver_reserved=0,
    )  # fmt: skip


def coop_run(steps: int = 120) -> list[ev.Event]:
    """The first `steps` steps of a CoOp-like run, from its start."""
    model = coop_model()
    states, trainable = coop_states(model)
    ctx = next(i for i, info in enumerate(model.parameters) if info.path == "ctx")
    parameters = 26 * MIB
    saved = tuple(
        (512 * 1024 if m.type_name in ("Linear", "GELU", "LayerNorm") and m.path.startswith("text") else 0)
        for m in model.modules
    )
    run: list[ev.Event] = [
        started(),
        ev.PhaseSampled(0.1, 0, Phase.LOAD),
        model,
        ev.OptimizersFound(0.6, 0, (OptimizerInfo("AdamW", 1, (ctx,), 0, (0,)),)),
        ev.MemoryMeasured(0.9, 0, Phase.LOAD, held(parameters, 0, 0, 0), parameters + 2 * MIB, True, True),
        ev.DeviceSampled(0.9, 0, "host", 620 * MIB, 24 * 1024 * MIB, None, None, None, None, None, None),
    ]
    for step in range(1, steps + 1):
        run += training_step(model, states, step)
        if step == 2:
            run.append(ev.ParametersClassified(1.0, step, states, trainable))
            run.append(coop_gradient_flow(model, step))
            run.append(ev.SavedBytesMeasured(1.0, step, saved, sum(saved), coop_upstream(model)))
    return run


def coop_chain(model: ev.ModelsFound, path: str = "ctx", step: int = 118) -> ev.GradientPathFound:
    """The way to the prompt, or through a row of the text encoder to the prompt, one addition or two in each block."""
    indices = {info.path: index for index, info in enumerate(model.modules)}
    row, blocks = row_of(model, path), [f"text_encoder.blocks.{block}" for block in range(7, -1, -1)]
    named: list[tuple[str | None, int, tuple[str, ...]]] = [
        (None, 2, ("NllLossBackward0", "LogSoftmaxBackward0")),
        ("", 2, ("MmBackward0", "PermuteBackward0")),
        ("text_encoder.ln_final", 1, ("NativeLayerNormBackward0",)),
        *((block, 2, ("AddBackward0",)) for block in blocks),
        ("", 2, ("CatBackward0", "ExpandBackward0")),
    ]
    hops = tuple(GradientHop(-1 if name is None else indices[name], count, ops) for name, count, ops in named)
    module = row if row >= 0 else model.parameters[~row].module
    ctx = next(i for i, info in enumerate(model.parameters) if info.path == "ctx")
    if path == "ctx":
        return ev.GradientPathFound(
            9.0, step, path, ctx, module, ev.GradientPath(True, hops, (), ctx, 1_000_000, 1, 390)
        )
    entered = next(index for index, hop in enumerate(hops) if model.modules[hop.module].path.startswith(path))
    gradient = ev.GradientPath(True, hops[: entered + 1], hops[entered:], ctx, 1, 0, 390)
    return ev.GradientPathFound(9.0, step, path, ~row if row < 0 else -1, module, gradient)


def large_model(parameters: int = 100_000) -> ev.ModelsFound:
    """A model of many small modules, two parameters each."""
    layers = parameters // 2
    groups = tuple(
        Node(str(group), "Block", (), tuple(_linear(f"fc{i}", 4, 4) for i in range(min(50, layers - 50 * group))))
        for group in range(-(-layers // 50))
    )
    return found(Node("Large", "Large", (), (Node("layers", "ModuleList", (), groups),)))


def row_of(model: ev.ModelsFound, path: str) -> int:
    """The tree's row number of a path."""
    for index, info in enumerate(model.parameters):
        if info.path == path:
            return ~index
    return next(index for index, module in enumerate(model.modules) if module.path == path)


def finding(
    rule: str = "GT203", level: Level = Level.ERROR, message: str = "nothing clears them", **more: Any
) -> Finding:
    """A finding, confirmed and open unless `more` says otherwise."""
    known = {"why": "they add up", "remedy": "call zero_grad()", "first_step": 2, "last_step": 40} | more
    return Finding(rule, level, known.pop("status", Status.CONFIRMED), message, **known)
