"""Runs of several optimizers, built by events alone: a GAN, SAC, training in stages, an optimizer for each parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import OptimizerInfo
from gradtui.run.state.run_state import RunState
from gradtui.run.text.ending import end_rows
from gradtui.run.text.units import number_text
from helpers.fakes import Node, found, started

SCALE = (1.0, 0.5, 0.25, 2.0, 8.0)


def linear(name: str, width: int = 4) -> Node:
    return Node(name, "Linear", (("weight", (width, width)), ("bias", (width,))))


def models(*roots: Node, step: int = 0) -> ev.ModelsFound:
    """A list of several models, whose paths begin with their names as in the probe's."""
    every = [found(root) for root in roots]
    listed = replace(every[0], step=step, models=(), modules=(), parameters=())
    for number, (root, own) in enumerate(zip(roots, every), 1):
        first, base, name = len(listed.modules), len(listed.parameters), root.name
        modules = tuple(
            replace(
                module,
                path=f"{name}.{module.path}" if module.path else name,
                parent=module.parent + first if module.parent >= 0 else -1,
                first_parameter=module.first_parameter + base,
            )
            for module in own.modules
        )
        parameters = tuple(
            replace(info, path=f"{name}.{info.path}", names=(f"{name}.{info.path}",), module=info.module + first)
            for info in own.parameters
        )
        listed = replace(
            listed,
            models=(*listed.models, replace(own.models[0], name=name, root=first, number=number)),
            modules=listed.modules + modules,
            parameters=listed.parameters + parameters,
        )
    return listed


def owner(listed: ev.ModelsFound, *prefixes: str, kind: str = "Adam", unknown: int = 0) -> OptimizerInfo:
    """An optimizer of all parameters below some paths, and of some that belong to no model."""
    owned = tuple(
        index
        for index, info in enumerate(listed.parameters)
        if any(info.path == prefix or info.path.startswith(f"{prefix}.") for prefix in prefixes)
    )
    return OptimizerInfo(kind, 1, owned, unknown, (0,) * len(owned))


def loss_at(optimizer: int, step: int) -> float:
    return SCALE[optimizer % len(SCALE)] * (1 + 1 / step)


def norm_at(optimizer: int, step: int) -> float:
    return SCALE[optimizer % len(SCALE)] / (2 + step)


def steps(
    order: Iterable[int],
    count: int,
    *,
    first: int = 1,
    loss: Callable[[int, int], float] = loss_at,
    of: Sequence[str] = (),
) -> list[ev.Event]:
    """Step after step, each by the optimizer whose turn it is. `of`: how the losses of each optimizer are combined."""
    made: list[ev.Event] = []
    for number, optimizer in enumerate(order, first):
        executed = tuple(int(index == optimizer) for index in range(count))
        at = 1.0 + number / 20
        phases = (ev.PhaseTime(ev.Phase.FORWARD, 0.04, 1),)
        made.append(ev.Progress(at, number, 1, 1, 0, executed, phases, 1e-4, 1, 1))
        figures = ev.StepFigures(
            number,
            optimizer,
            loss(optimizer, number),
            of[optimizer] if of else "",
            norm_at(optimizer, number),
        )
        made.append(ev.StepsMeasured(at, number, (figures,)))
    return made


def run_of(listed: ev.ModelsFound, owners: Sequence[OptimizerInfo], *events: Iterable[ev.Event]) -> list[ev.Event]:
    return [
        started("gan.py"),
        listed,
        ev.OptimizersFound(0.6, 0, tuple(owners)),
        *chain(*events),
    ]


def gan(count: int = 40, of: Sequence[str] = ()) -> list[ev.Event]:
    """The discriminator, which steps first, is the second optimizer."""
    listed = models(*(Node(name, name, (), (linear("net"),)) for name in ("Generator", "Discriminator")))
    owners = owner(listed, "Generator"), owner(listed, "Discriminator")
    return run_of(listed, owners, steps([1, 0] * (count // 2), 2, of=of))


def sac(count: int = 40, sizes: Sequence[float] = (1.0, 1.0, 1.0)) -> list[ev.Event]:
    """Two critics with one optimizer, the actor, and log_alpha, which belongs to no model. `sizes` multiply their losses."""
    listed = models(*(Node(name, kind, (), (linear("l1"),)) for name, kind in SAC_MODELS))
    owners = owner(listed, "qf1", "qf2"), owner(listed, "actor"), owner(listed, unknown=1)
    return run_of(
        listed,
        owners,
        steps([0, 0, 1, 2] * (count // 4), 3, loss=lambda index, step: sizes[index] * loss_at(index, step)),
    )


SAC_MODELS = (("actor", "Actor"), ("qf1", "Critic"), ("qf2", "Critic"), ("qt1", "Critic"), ("qt2", "Critic"))


def stages(length: int = 20) -> list[ev.Event]:
    """The encoder trains first, and then the head alone."""
    listed = models(Node("encoder", "Encoder", (), (linear("l1"),)), Node("head", "Head", (), (linear("l1"),)))
    owners = owner(listed, "encoder"), owner(listed, "head")
    return run_of(listed, owners, steps([0] * length + [1] * length, 2))


def per_parameter(layers: int = 20, count: int = 5) -> list[ev.Event]:
    """An optimizer for each parameter of one model, which step while backward runs."""
    listed = models(Node("net", "Net", (), tuple(linear(f"l{index}") for index in range(layers))))
    owners = [owner(listed, info.path, kind="SGD") for info in listed.parameters]
    made = steps(
        [*range(len(owners))] * count,
        len(owners),
        loss=lambda _, step: loss_at(0, 1 + (step - 1) // len(owners)),
    )
    return run_of(listed, owners, made)


def two_of_one_model(kinds: tuple[str, str] = ("Muon", "AdamW"), count: int = 40) -> list[ev.Event]:
    """The matrices have one optimizer and the rest another; both apply the gradients of one backward."""
    listed = models(Node("gpt", "GPT", (("wte", (8, 4)),), (linear("l0"), linear("l1"))))
    matrices = tuple(i for i, info in enumerate(listed.parameters) if info.path.endswith("weight"))
    others = tuple(i for i in range(len(listed.parameters)) if i not in matrices)
    owners = [OptimizerInfo(kind, 1, owned, 0) for kind, owned in zip(kinds, (matrices, others))]
    made = steps([0, 1] * (count // 2), 2, loss=lambda _, step: loss_at(0, 1 + (step - 1) // 2))
    return run_of(listed, owners, made)


def texts_of(state: RunState, label: str) -> list[str]:
    """Return the closing rows with a label."""
    return [row.text for row in end_rows(state) if row.label == label]


def course(value: object, first: int, last: int) -> str:
    """Return the first and the last value of a run as its closing rows write them."""
    assert callable(value)
    one, other = (number_text(value(step)).strip() for step in (first, last))
    return f"{one} (step {first:,}) → {other} (step {last:,})"


def of_loss(optimizer: int, first: int, last: int) -> str:
    return course(lambda step: loss_at(optimizer, step), first, last)


def of_norm(optimizer: int, first: int, last: int) -> str:
    return course(lambda step: norm_at(optimizer, step), first, last)
