"""Rows of the rules of what stays in memory, of eval mode, and of figures of gradients: GT301 to GT505."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pytest
from helpers.fakes import Node, found
from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import calls, figures, linear, rate_read, run, then, window
from helpers.states import state_after

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import GroupSettings, OptimizerInfo
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

MIB = 1 << 20


def graphs(forwards: int, since: int) -> RunState:
    """A run in which the graphs of so many forwards since a step are alive at step 41."""
    return then(run(), ev.GraphsAlive(1.0, 41, forwards, False, since, 3 * MIB))


CHECKPOINT = ev.CheckpointAlive(1.0, 3, 12, 6 * MIB, "checkpoint")


def grown(counts: Iterable[int], *, every: int = 1) -> RunState:
    """A run whose sampled steps, `every` steps apart, have so many operations of earlier steps in their graph."""
    steps = ((1 + at * every, count) for at, count in enumerate(counts))
    return state_after(
        *(
            ev.SavedBytesMeasured(float(step), step, (), 0, operations=count + 7, earlier_operations=count)
            for step, count in steps
        )
    )


def kept(holder: str = "features", *, tensors: int = 20, with_graph: int = 20, epoch: int | None = None) -> RunState:
    """A run in which a holder keeps tensors of two MiB, more with each step; an epoch has so many steps."""
    state = run()
    state.epoch_steps = epoch
    more = 1.0 if tensors > 1 else 0.0
    held = ev.KeptTensors(holder, False, tensors, 2 * MIB, with_graph, more, 65_536.0, 2)
    return then(state, ev.KeptTensorsFound(1.0, 20, (held,)))


def holding(size: int, *, of_module: bool = True, since: int = 2, forwards: int = 1) -> RunState:
    """A run in which `2.alphas` holds so many bytes of graphs of two MiB, in step 15 since a step."""
    return then(
        run(steps=40),
        ev.GraphsAlive(1.0, 15, forwards, False, since, 2 * MIB),
        ev.GraphHolderFound(1.0, 15, "2.alphas", of_module, forwards, size, since),
    )


def of_earlier_steps(operations: int) -> RunState:
    """A run that retains graphs, and whose newest graph has so many operations of earlier steps."""
    state = then(run(), ev.GraphRetained(1.0, 20, 3, 2 << 20))
    state.earlier_operations.append(20, operations)
    return state


def in_eval_mode(*, number: int = 3, steps: int = 3, trained_before: bool = True, kind: str = "Dropout") -> RunState:
    """A run whose model has made so many calls in eval mode since step 21, within so many steps."""
    mode = ev.EvalModeTraining("Net", 21, 20 + steps, number, trained_before)
    return run(
        model=found(Node("Net", "Net", (), (linear("a"), Node("drop", kind), linear("b")))), reach="eeee",
        grad_modes="gggg", training="0000", called=(1, 2, 3, 4), calls=calls(eval_mode=(mode,)),
    )  # fmt: skip


def in_eval_mode_of_second_optimizer() -> RunState:
    """A script that pretrains a model, and fine-tunes it in eval mode with a second optimizer from step 20 on."""
    mode = ev.EvalModeTraining("Net", 21, 23, 3, trained_before=True)
    windows = window(), window(optimizer=1, first_step=20, count=10)
    return then(in_eval_mode(), calls(*windows, eval_mode=(mode,)))


def in_eval_mode_after_two_steps() -> RunState:
    """A script that evaluates after two steps, and trains in eval mode since then."""
    mode = ev.EvalModeTraining("Net", 3, 20, 18, trained_before=True)
    return then(in_eval_mode(), calls(window(), eval_mode=(mode,)))


def dead(weight: float, bias: float, kind: str = "Linear", states: str = "TTTT", stored: int = 20) -> RunState:
    """The share of zeros in the gradients of the 20 units of `a`; those of `b` have none."""
    first = Node("a", kind, (("weight", (20, 4)), ("bias", (20,))))
    state = run(states, model=found(Node("Net", "Net", (), (first, linear("b")))))
    shares = {0: weight, 1: bias, 2: 0.0, 3: 0.0}
    return then(state, figures(5, dict.fromkeys(shares, 0.001), zeros=shares, elements=20, stored=stored))


VANISHING = (1e-7, 1e-7, 1e-4, 1e-4, 1e-1, 1e-1)


def by_depth(*sizes: float, kind: str = "Linear", states: str = "", in_turn: bool = True) -> RunState:
    """The root mean square of the gradient of each weight. The modules are called in turn, or in the reverse order."""
    count = len(sizes)
    layers = tuple(Node(name, kind, linear(name).parameters) for name in "abcdef"[:count])
    ranks = range(2, count + 2) if in_turn else range(count + 1, 1, -1)
    state = run(
        states or "TT" * count, "11" * count, owned=range(2 * count), model=found(Node("Net", "Net", (), layers)),
        called=(1, *ranks), reach="e" * (count + 1), grad_modes="g" * (count + 1), training="1" * (count + 1),
    )  # fmt: skip
    # A weight has 16 elements: the L2 norm is four times the root mean square.
    norms = tuple(norm for size in sizes for norm in (4 * size, 1.0))
    return then(state, ev.GradientsMeasured(1.0, 20, 1.0, None, norms))


def updated(ratios: Sequence[float], parameter: int = 0, first: int = 11, states: str = "TTTT") -> RunState:
    """The update ratios of a parameter in the steps from `first` on."""
    return then(run(states), *(figures(step, {parameter: ratio}) for step, ratio in enumerate(ratios, first)))


def warmed(ratio: float, changed: int) -> RunState:
    """Three updates of this ratio from step 11 on; the learning rate changes at a step."""
    return then(updated([ratio] * 3), rate_read(0.02, step=changed, before=changed - 1))


NORM = Node("b", "LayerNorm", (("weight", (4,)), ("bias", (4,))))


def decayed(
    *decays: float | None, groups: tuple[int, ...] = (0, 0, 0, 0), trainable: str = "1111", freed: bool = False
) -> RunState:
    """A linear module `a` and a norm `b`; the weight decay of each group, and the group of each parameter."""
    return then(
        run(trainable=trainable, model=found(Node("Net", "Net", (), (linear("a"), NORM)))),
        ev.OptimizersFound(1.0, 1, (OptimizerInfo("AdamW", len(decays), (0, 1, 2, 3), 0, groups, freed=freed),)),
        ev.GroupsRead(1.0, 1, (tuple(GroupSettings(0.01, decay) for decay in decays),)),
    )


def decayed_tokens() -> RunState:
    """A class token and the table of a relative position bias beside a linear module, all with a weight decay."""
    model = found(Node("Net", "Net", (("token", (4,)), ("bias_table", (4, 4))), (linear("b"),)))
    return then(run(model=model), rate_read(0.01, decay=0.1))


def clipped(*norms: float, threshold: float | None = 1.0) -> RunState:
    """The norms before clipping in the steps from 1 on."""
    applied = (norm if threshold is None else min(norm, threshold) for norm in norms)
    rows = enumerate(zip(norms, applied), 1)
    return then(
        run(), *(ev.GradientsMeasured(1.0, step, after, None, None, norm, threshold) for step, (norm, after) in rows)
    )


ROWS: Table = {
    "GT301": (
        reports(
            "graphs of most steps", lambda: graphs(20, since=2),
            evidence={"forwards": 20, "since_step": 2, "bytes": 3 * MIB}, first_step=2,
        ),
        # Two optimizers step in turn, and the graphs of one are kept.
        reports("a graph of every second step", lambda: graphs(19, since=3), numbers={"forwards": 19}),
        quiet("the last four graphs", lambda: graphs(4, since=37)),
        quiet("a graph of every sixth step", lambda: graphs(7, since=2)),
    ),
    "GT302": (
        reports(
            "a loaded checkpoint", lambda: then(run(), CHECKPOINT),
            evidence={"tensors": 12, "bytes": 6 * MIB, "holder": "checkpoint"},
        ),
        quiet("it is freed", lambda: then(run(), CHECKPOINT, ev.CheckpointAlive(2.0, 9, 0, 0, None))),
        quiet("none was loaded", run),
    ),
    "GT303": (
        reports("three evaluations", lambda: run(calls=calls(unused_eval_graphs=3)), evidence={"forwards": 3}),
        quiet("two evaluations", lambda: run(calls=calls(unused_eval_graphs=2))),
        quiet("a run that does not train", lambda: run(calls=calls(unused_eval_graphs=3), steps=0)),
    ),
    "GT304": (
        reports(
            "all earlier steps", lambda: grown(6 * step for step in range(12)),
            evidence={"operations": 73, "earlier_operations": 66, "operations_per_step": 6.0}, first_step=3,
        ),
        reports(
            "samples some steps apart", lambda: grown((60 * sample for sample in range(4)), every=10),
            numbers={"operations_per_step": 6.0},
        ),
        quiet("each step has a graph of its own", lambda: grown([0] * 30)),
        quiet("backward through eight steps", lambda: grown(6 * min(step, 8) for step in range(30))),
        quiet("detached at every fifth step", lambda: grown(6 * (step % 5) for step in range(30))),
        quiet("too few steps", lambda: grown(6 * step for step in range(9))),
        quiet("grows less and less", lambda: grown([*range(0, 60, 10), *range(51, 56)])),
    ),
    "GT305": (
        reports("tensors with a graph", kept, level=None),
        reports("detached tensors", lambda: kept(with_graph=0), level=Level.NOTE),
        reports("detached tensors in the first epoch", lambda: kept(with_graph=0, epoch=100), level=Level.NOTE),
        reports("graphs in the first epoch", lambda: kept(epoch=100), level=None),
        reports("detached tensors after an epoch", lambda: kept(with_graph=0, epoch=10), level=None),
        reports("one tensor that grows", lambda: kept("bank", tensors=1, with_graph=0)),
        reports("gradients with graphs", lambda: kept("")),
        reports("the graph of one forward", lambda: holding(2 * MIB), level=None),
        reports("a holder beside the model", lambda: holding(2 * MIB, of_module=False), level=Level.NOTE),
        quiet("a holder of half of the bytes", lambda: holding(MIB)),
        quiet("a young graph", lambda: holding(2 * MIB, since=30)),
        quiet("nothing is kept", run),
    ),
    "GT306": (
        reports(
            "a graph in each step", lambda: then(run(), ev.GraphRetained(1.0, 20, 3, 2 << 20)),
            evidence={"bytes": 2 << 20, "steps": 3}, is_exact=True,
        ),
        quiet("two steps", lambda: then(run(), ev.GraphRetained(1.0, 20, 2, 2 << 20))),
        quiet("a small graph", lambda: then(run(), ev.GraphRetained(1.0, 20, 3, 2 << 10))),
        quiet("a later backward goes through it", lambda: of_earlier_steps(3)),
    ),
    "GT401": (
        *(
            reports(
                f"after an evaluation, with {kind}", lambda kind=kind: in_eval_mode(kind=kind),
                evidence={"since_step": 21, "forwards": 3, "modules": 1}, level=None,
            )
            for kind in ("Dropout", "BatchNorm1d")
        ),
        reports("a second optimizer begins with eval mode", in_eval_mode_of_second_optimizer, level=Level.NOTE),
        # The first optimizer begins no new phase.
        reports("an evaluation after two steps", in_eval_mode_after_two_steps, level=None),
        # Fine-tuning with dropout off and fixed statistics.
        quiet("it never trained otherwise", lambda: in_eval_mode(trained_before=False)),
        # An attack on the inputs of an evaluation.
        quiet("calls within two steps", lambda: in_eval_mode(number=20, steps=2)),
        quiet("two calls", lambda: in_eval_mode(number=2)),
        quiet("a model that the mode does not change", lambda: in_eval_mode(kind="LayerNorm")),
    ),
    "GT402": (
        reports(
            "two evaluations",
            lambda: run(calls=calls(unfit_evaluations=(ev.UnfitEvaluations("Net", 2, 8, 20, (("Dropout", 3),)),))),
            evidence={"evaluations": 2, "forwards": 8, "modules": 3}, first_step=20,
        ),
        reports(
            "a function",
            lambda: run(calls=calls(unfit_evaluations=(ev.UnfitEvaluations("Net", 1, 4, 20, (("Net", 1),), False),))),
            numbers={"evaluations": 1},
        ),
        quiet("none in train mode", run),
    ),
    "GT501": (
        *(
            reports(
                f"most units of a {kind}", lambda kind=kind: dead(0.95, 0.9, kind),
                evidence={"units": 20, "units_without_gradient": 18, "zero_fraction": 0.95},
                paths=("a.weight", "a.bias"), is_exact=False, lacked="",
            )
            for kind in ("Linear", "Conv2d", "BatchNorm1d")
        ),
        reports(
            "a layer without any gradient", lambda: dead(1.0, 1.0, states="ZZTT"), numbers={"units_without_gradient": 20}
        ),
        # Inputs that are zero, and a masked bias.
        quiet("zeros of the weight alone", lambda: dead(0.99, 0.0)),
        quiet("zeros of the bias alone", lambda: dead(0.0, 0.99)),
        quiet("fewer zeros", lambda: dead(0.89, 0.89)),
        quiet("an embedding", lambda: dead(1.0, 1.0, "EmbeddingWithBias")),
        quiet("a sparse gradient", lambda: dead(1.0, 1.0, stored=1)),
        quiet("a frozen layer", lambda: dead(1.0, 1.0, states="FFTT")),
        quiet("no zeros", lambda: dead(0.0, 0.0), lacked=""),
        quiet("no statistics", run, lacked="no layer with a bias had statistics of its gradient"),
    ),
    "GT502": (
        reports(
            "a hundredth in each third", lambda: by_depth(1e-7, 1e-9, 1e-5, 1e-5, 1e-1, 1e-3),
            evidence=pytest.approx({"layers": 6, "first": 1e-8, "middle": 1e-5, "last": 1e-2}),
            paths=("a.weight", "b.weight"),
        ),
        reports(
            "in the order of the calls", lambda: by_depth(*reversed(VANISHING), in_turn=False),
            paths=("f.weight", "e.weight"),
        ),
        quiet("against the order of the calls", lambda: by_depth(*VANISHING, in_turn=False)),
        quiet("it falls once", lambda: by_depth(1e-7, 1e-7, 1e-1, 1e-1, 1e-1, 1e-1)),
        quiet("it falls less", lambda: by_depth(1e-4, 1e-4, 9e-3, 9e-3, 0.9, 0.9)),
        quiet("it does not fall", lambda: by_depth(*[0.1] * 6), lacked=""),
        quiet("five layers", lambda: by_depth(*VANISHING[:5]), lacked="no model had 6 layers with a gradient"),
        quiet("other modules", lambda: by_depth(*VANISHING, kind="Embedding")),
        quiet("a frozen layer", lambda: by_depth(*VANISHING, states="CC" + "TT" * 5)),
        quiet("a layer without a gradient", lambda: by_depth(0.0, *VANISHING[1:])),
        quiet("two layers", run),
    ),
    "GT503": (
        reports(
            "a hundred times too small", lambda: updated([1e-3, 9e-6, 8e-6, 7e-6]),
            evidence={"tensors": 1, "elements": 16, "update_ratio": 7e-6}, paths=("a.weight",), key="less than 1e-05",
        ),
        reports(
            "a hundred times too large", lambda: updated([0.2, 0.3, 0.4]), numbers={"update_ratio": 0.4}, key="more than 0.1"
        ),
        *(
            quiet(f"ratios of {', '.join(map(str, ratios))}", lambda ratios=ratios: updated(ratios))
            for ratios in ([9e-6, 1e-5, 9e-6], [0.2, 0.1, 0.2], [0.0] * 3, [0.5] * 2)
        ),
        quiet("usual ratios", lambda: updated([1e-3] * 3), lacked=""),
        quiet(
            "two ratios", lambda: updated([1e-3] * 2), lacked="too few update ratios were read after step 10"
        ),
        quiet("the first steps", lambda: updated([0.5] * 3, first=10)),
        quiet("a bias", lambda: updated([0.5] * 3, parameter=1)),
        quiet("a frozen weight", lambda: updated([0.5] * 3, states="FTTT")),
        # After n equal steps from zero the next one has the ratio 1 / n.
        quiet("a weight that begins at zero", lambda: updated([1 / n for n in range(1, 14)], first=2)),
        # The settings of step 11 hold for the measurements of the steps 11, 12 and 13.
        reports("small since the rate changed", lambda: warmed(1e-6, changed=11)),
        quiet("small while the rate changes", lambda: warmed(1e-6, changed=12)),
        reports("large while the rate changes", lambda: warmed(0.5, changed=13)),
    ),
    "GT504": (
        reports(
            "one group of all parameters", lambda: decayed(0.1),
            paths=("a.bias", "b.weight", "b.bias"), evidence={"tensors": 3, "elements": 12, "weight_decay": 0.1},
            is_exact=True, lacked="",
        ),
        reports("one group of two decays", lambda: decayed(0.1, 0.0, groups=(0, 1, 0, 1)), paths=("b.weight",)),
        reports("a frozen bias", lambda: decayed(0.1, trainable="1011"), paths=("b.weight", "b.bias")),
        reports("a class token and a table of biases", decayed_tokens, paths=("b.bias",)),
        quiet("weights alone decay", lambda: decayed(0.1, 0.0, groups=(0, 1, 1, 1))),
        quiet("a decay of 0", lambda: decayed(0.0), lacked="no optimizer had a weight decay"),
        quiet("an unknown decay", lambda: decayed(None), lacked="no optimizer had a weight decay"),
        quiet("an optimizer that is gone", lambda: decayed(0.1, freed=True)),
        quiet("no optimizer", lambda: run(owned=None), lacked="no optimizer stepped"),
    ),
    "GT505": (
        reports(
            "19 of 20 steps", lambda: clipped(0.5, *[3.0] * 9, *[5.0] * 10),
            evidence={"measured_steps": 20, "clipped_steps": 19, "median_norm": 5.0, "threshold": 1.0},
            first_step=2, is_exact=True,
        ),
        reports(
            "the newest 200 steps", lambda: clipped(*[0.5] * 300, *[2.0] * 200),
            numbers={"measured_steps": 200}, first_step=301,
        ),
        # Longer than the series are.
        reports("a long run", lambda: clipped(*[2.0] * 5_000), numbers={"measured_steps": 200}),
        quiet("19 steps", lambda: clipped(*[2.0] * 19)),
        quiet("18 of 20 steps", lambda: clipped(*[2.0] * 18, 0.5, 0.5)),
        quiet("norms at the threshold", lambda: clipped(*[1.0] * 30)),
        quiet("earlier steps", lambda: clipped(*[2.0] * 300, *[0.5] * 11)),
        quiet("one norm below the threshold", lambda: clipped(0.5), lacked=""),
        # The first is how scripts ask for the norm alone; the second is unknown.
        *(
            quiet(
                f"clipping at {name}", lambda threshold=threshold: clipped(*[2.0] * 30, threshold=threshold),
                lacked="no measured step clipped the gradient by its norm",
            )
            for name, threshold in (("infinity", math.inf), ("a tensor", None))
        ),
        quiet("no clipping", run, lacked="no measured step clipped the gradient by its norm"),
    ),
}  # fmt: skip
