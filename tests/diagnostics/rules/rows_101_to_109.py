"""Rows of the rules of what moves, stays and is left out of optimizers: GT101 to GT109."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes import Node, found
from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import linear, run, then
from helpers.states import state_after
from rows_110_to_123 import two_models

from gradtui.protocol import events as ev
from gradtui.protocol.vocabulary import BufferInfo, GroupSettings, ModelInfo, ModuleInfo, ParameterInfo
from gradtui.run.state.findings import Level
from gradtui.run.state.parts.job import Divergence, JobState
from gradtui.run.state.run_state import RunState

MIB = 1 << 20
A_PATHS = ("a.weight", "a.bias")
A_NUMBERS = {"tensors": 2, "elements": 20}
ADAM = GroupSettings(0.01, 0.0, (("betas", (0.9, 0.999)), ("eps", 1e-8)))

NORM = Node("norm", "BatchNorm1d", (("weight", (4,)), ("bias", (4,))))
STATISTICS = (BufferInfo("norm.running_mean", (4,), "float32", 4, 16, 1, persistent=True),)
WITH_NORM = replace(found(Node("Net", "Net", (), (NORM, Node("drop", "Dropout"), linear("b")))), buffers=STATISTICS)
"""Modules: Net, norm, drop, b. Parameters: norm.weight, norm.bias, b.weight, b.bias."""


def with_norm(
    trainable: str = "0011", training: str = "1111", called: tuple[int, ...] = (1, 2, 3, 4), *, teaches: bool = False
) -> RunState:
    """A run with a norm and dropout; if it `teaches`, under no_grad and in no optimizer."""
    if teaches:
        return run(
            "CCCC", "0000", model=WITH_NORM, owned=(), reach="----", grad_modes="nnnn", training=training, called=called
        )
    return run("FFTT", trainable, model=WITH_NORM, reach="eppe", grad_modes="gggg", training=training, called=called)


def momentum_encoder() -> RunState:
    """A frozen norm under no_grad within a model that trains."""
    return run("CCTT", "0011", model=WITH_NORM, reach="--ee", grad_modes="gnng", training="1111", called=(1, 2, 3, 4))


def with_strangers(state: RunState, unknown: int, *with_new_gradients: int) -> RunState:
    """Give the optimizer `unknown` tensors of no live module; so many of them get new gradients, step by step."""
    then(state, ev.OptimizersFound(1.0, 20, (replace(state.optimizers[0], unknown_parameters=unknown),)))
    return then(
        state, *(ev.UnlistedTensorsTrain(1.0, 20 + at, 0, count) for at, count in enumerate(with_new_gradients))
    )


def input_gradients(*sizes: int) -> RunState:
    """Sampled steps in which gradients that nobody reads keep so many of ten MiB."""
    unused = ev.InputGradientUnused(1.0, 0, ("frozen.0", "frozen.1"), 2, 0, 10 * MIB)
    return then(run(), *(replace(unused, step=step, bytes=size) for step, size in enumerate(sizes, 1)))


BYTES = 40
"""Of each of the three parameters of a wrapped model: a, b, c."""
WRAPPED = ev.ModelsFound(
    0.0, 0,
    (ModelInfo("model", "DistributedDataParallel", 0, 1),),
    (ModuleInfo("", "model", "DistributedDataParallel", 0, -1, 0, 3, 3, 1),),
    tuple(ParameterInfo(name, (name,), (10,), "float32", 10, BYTES, 0) for name in "abc"),
)  # fmt: skip
UNREDUCED = (
    "RuntimeError: Expected to have finished reduction\nParameter indices which did not receive grad for rank 0: {}\n"
)


def wrapped(*trainable: str, buckets: int = 0, error: str | None = None, differ: tuple[str, ...] = ()) -> RunState:
    """Steps of a model within DistributedDataParallel, whose buckets have so many bytes; its run may end by an error.

    Of the parameters in `differ` the values differ between two ranks.
    """
    state = state_after(WRAPPED)
    for step, flags in enumerate(trainable, 1):
        then(state, ev.ParametersClassified(float(step), step, "TTT", flags))
        then(state, ev.GradientFlowMeasured(float(step), step, 0, "e", "g", "1", (1,), (BYTES,), (buckets,)))
    if error is not None:
        then(state, ev.RunEnded(9.0, 2, 1, error))
    if differ:
        state.job = JobState()
        state.job.divergences["checksums"] = Divergence("checksums", 16, 32, (0, 1), (1,), differ, ())
    return state


ROWS: Table = {
    "GT101": (
        *(
            reports(
                f"zeros move frozen parameters ({reason})", lambda reason=reason: run("MMTT", "0011", reason * 2 + "--"),
                paths=A_PATHS, evidence=A_NUMBERS,
            )
            for reason in "zd"
        ),
        reports("moments of Adam", lambda: then(run("MMTT", "0011", "zz--"), ev.GroupsRead(1.0, 21, ((ADAM,),)))),
        *(
            quiet(f"moved for another reason ({reason})", lambda reason=reason: run("MMTT", "0011", reason * 2 + "--"))
            for reason in "sow-"
        ),
        quiet("a frozen parameter that stays", lambda: run("CCTT", "0011")),
    ),
    "GT102": (
        reports(
            "the optimizer moves without a gradient", lambda: run("MTTT", "0111", "o---"),
            paths=("a.weight",), evidence={"tensors": 1, "elements": 16}, level=None, is_exact=True,
        ),
        reports(
            "the script decays or averages by itself", lambda: run("MMTT", "0011", "ww--"),
            level=Level.NOTE, key="outside", evidence=A_NUMBERS,
        ),
        quiet("an average in no optimizer", lambda: run("MMTT", "0011", "oo--", owned=(2, 3))),
        quiet("written by the script, in no optimizer", lambda: run("MMTT", "0011", "ww--", owned=(2, 3))),
    ),
    "GT103": (
        reports(
            "a stale gradient", lambda: run("TTTM", "1110", "---s"),
            paths=("b.bias",), evidence={"tensors": 1, "elements": 4}, is_exact=True,
        ),
        quiet("a gradient of zeros", lambda: run("TTTM", "1110", "---z")),
    ),
    "GT104": (
        reports("statistics of a frozen norm", with_norm, paths=("norm",), evidence={"modules": 1}, silent=("GT105",)),
        quiet("in eval mode", lambda: with_norm(training="1011")),
        quiet("track_running_stats is off", lambda: with_norm(training="1h11")),
        quiet("the norm trains", lambda: with_norm("1111")),
        quiet("the norm did not run", lambda: with_norm(called=(1, -1, 2, 3))),
        quiet("a teacher", lambda: with_norm(called=(0, -1, -1, -1), teaches=True)),
        quiet("a momentum encoder", momentum_encoder),
    ),
    "GT105": (
        reports(
            "a teacher in train mode", lambda: with_norm(called=(0, -1, -1, -1), teaches=True),
            paths=("drop", "norm"), evidence={"dropout_modules": 1, "statistics_modules": 1},
        ),
        reports(
            "a momentum encoder within the model", momentum_encoder,
            evidence={"dropout_modules": 0, "statistics_modules": 1},
        ),
        quiet("in eval mode", lambda: with_norm(training="0000", called=(0, -1, -1, -1), teaches=True)),
        quiet("a teacher that did not run", lambda: with_norm(called=(-1, -1, -1, -1), teaches=True)),
    ),
    "GT106": (
        reports(
            "a module in no optimizer", lambda: run("OOTT", owned=(2, 3)),
            # An unfreeze refuses what is trainable already.
            paths=A_PATHS, evidence=A_NUMBERS, command=None,
        ),
        reports("samples count before progress", lambda: run("OOTT", owned=(2, 3), steps=0, samples=3)),
        reports(
            "a second model of the same shapes", lambda: two_models("TTOO", is_copy=False), paths=("b.weight", "b.bias")
        ),
        quiet("two steps", lambda: run("OOTT", owned=(2, 3), steps=2, samples=2)),
        quiet("backward does not enter it", lambda: run("OOTT", owned=(2, 3), reach="e-e")),
        quiet("backward is not known to enter it", lambda: run("OOTT", owned=(2, 3), reach="e e")),
        quiet("without an optimizer", lambda: run("OOOO", owned=None)),
    ),
    "GT107": (
        reports(
            "a head that was replaced", lambda: with_strangers(run("TTOO", owned=(0, 1)), 2),
            paths=("b.weight", "b.bias"), evidence={"tensors_of_no_module": 2, "tensors_in_no_optimizer": 2},
        ),
        reports(
            "one stranger trains", lambda: with_strangers(run("TTOO", owned=(0, 1)), 3, 1),
            numbers={"tensors_of_no_module": 2},
        ),
        quiet("all strangers train", lambda: with_strangers(run("TTOO", owned=(0, 1)), 3, 1, 3)),
        quiet("no stranger", lambda: with_strangers(run("TTOO", owned=(0, 1)), 0)),
        quiet("no orphan", lambda: with_strangers(run(), 2)),
    ),
    "GT108": (
        reports(
            "two sampled steps", lambda: input_gradients(4 * MIB, 4 * MIB),
            paths=("frozen.0", "frozen.1"), evidence={"modules": 2, "bytes": 4 * MIB, "saved_bytes": 10 * MIB},
        ),
        quiet("one sampled step", lambda: input_gradients(4 * MIB)),
        quiet("little memory", lambda: input_gradients(MIB // 2, MIB // 2)),
    ),
    "GT109": (
        *(
            reports(
                f"an error names {', '.join(paths)} of {trainable}",
                lambda trainable=trainable, indices=indices: wrapped(trainable, error=UNREDUCED.format(indices)),
                paths=paths, evidence={"tensors": len(paths), "elements": 10 * len(paths)},
            )
            # A frozen parameter has no index.
            for trainable, indices, paths in (("111", "1 2", ("b", "c")), ("011", "1", ("c",)), ("011", "0 1", ("b", "c")))
        ),
        reports(
            "unfrozen later", lambda: wrapped("011", "111", buckets=2 * BYTES),
            level=Level.WARNING, paths=("a",),
        ),
        reports(
            "values are known to differ", lambda: wrapped("011", "111", buckets=2 * BYTES, differ=("a", "c")), level=None
        ),
        reports(
            "other values differ", lambda: wrapped("011", "111", buckets=2 * BYTES, differ=("c",)), level=Level.WARNING
        ),
        reports(
            "added later", lambda: wrapped("111", buckets=2 * BYTES),
            level=Level.WARNING, key="added", evidence={"averaged_bytes": 2 * BYTES, "trainable_bytes": 3 * BYTES},
        ),
        quiet("all have a place", lambda: wrapped("111", buckets=3 * BYTES)),
        quiet("unfrozen, with a place", lambda: wrapped("011", "111", buckets=3 * BYTES)),
        quiet("the buckets are not known", lambda: wrapped("011", "111")),
        quiet("still frozen", lambda: wrapped("011", "011", buckets=2 * BYTES)),
        quiet("frozen now", lambda: wrapped("111", "011", buckets=3 * BYTES)),
        quiet("another error", lambda: wrapped("111", error="ValueError: 4 5")),
    ),
}  # fmt: skip
