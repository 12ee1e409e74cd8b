"""Rows of the rules of what a model lacks, has twice or writes by itself: GT110 to GT123."""

from __future__ import annotations

from dataclasses import replace

from helpers.fakes import Node, found
from helpers.rule_rows import Table, quiet, reports
from helpers.scripted_runs import linear, run, then

from gradtui.protocol import events as ev
from gradtui.protocol.freezes import FreezeInForce
from gradtui.protocol.vocabulary import BufferInfo, ModelInfo, OptimizerInfo, UnregisteredModule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

A_PATHS = ("a.weight", "a.bias")
B_PATHS = ("b.weight", "b.bias")
NO_GRAPH = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"


def unregistered(*modules: tuple[str, int, int]) -> RunState:
    """A run with modules of 20 elements that are in none: who calls each, its trainable elements, those in optimizers."""
    rows = tuple(UnregisteredModule(caller, "Linear", None, 20, free, owned, 0) for caller, free, owned in modules)
    return then(run(), ev.UnregisteredFound(1.0, 1, rows))


def lora(
    first: str = "A", second: str = "B", *, within: str = "", kind: str = "Adapter", states: str = "TTTTTT",
    trainable: str = "111111",
) -> RunState:  # fmt: skip
    """A run of a layer with two matrices of 8 elements, in a module of their own if that is named; and of another layer."""
    low_rank = (first, (2, 4)), (second, (4, 2))
    weights = linear("layer").parameters
    layer = (
        Node("layer", "Linear", weights, (Node(within, kind, low_rank),))
        if within
        else Node("layer", "Linear", (*weights, *low_rank))
    )
    modules = 4 if within else 3
    return run(
        states, trainable, owned=range(6), model=found(Node("Net", "Net", (), (layer, linear("head")))),
        reach="e" * modules, grad_modes="g" * modules, training="1" * modules, called=tuple(range(1, modules + 1)),
    )  # fmt: skip


def without_backward() -> RunState:
    """A run of 60 steps without a backward."""
    state = run("UUUU", steps=60)
    state.micro_steps = 0
    return state


def with_lora_in_name(
    within: str = "", own: tuple[tuple[str, tuple[int, ...]], ...] = (("token", (1, 4)), ("place", (9, 4)))
) -> RunState:
    """A run of a model with a head of 8 outputs, and with these parameters, in a module of their own if that is named."""
    head = Node("head", "Linear", (("weight", (8, 4)), ("bias", (8,))))
    children = (Node(within, "LoRALayer", own), head) if within else (head,)
    modules = 1 + len(children)
    return run(
        model=found(Node("Net", "LoRAViT", () if within else own, children)),
        reach="e" * modules, grad_modes="g" * modules, training="1" * modules, called=tuple(range(1, modules + 1)),
    )  # fmt: skip


def lost_tensors(*holders: str | None, **changes: object) -> RunState:
    """A run with tensors of eight elements that get a gradient since step 1, and are in no module."""
    usual = ev.UnregisteredTensor(None, True, None, True, False, 8, 1)
    rows = tuple(replace(usual, holder=holder, **changes) for holder in holders)  # type: ignore[arg-type]
    return then(run(), ev.UnregisteredTensorsFound(1.0, 9, rows))


def shared(owned: tuple[int, ...], trainable: str = "1111") -> RunState:
    """A run in which both weights are over one storage."""
    plain, of = run().tree, {"a.weight": ("b.weight",), "b.weight": ("a.weight",)}
    parameters = tuple(replace(each, same_storage=of.get(each.path, ())) for each in plain.parameters)
    return run(trainable=trainable, owned=owned, model=ev.ModelsFound(0.5, 0, plain.models, plain.modules, parameters))


def two_models(states: str, size: int = 4, training: str = "11", *, is_copy: bool = True) -> RunState:
    """Two linear modules, each a model of its own: `b` has outputs of `size`, and is a copy of `a` if it can be."""
    tree = run().tree
    modules = [replace(each, depth=0, parent=-1, path=each.name) for each in tree.modules[1:]]
    parameters = [replace(each, module=each.module - 1) for each in tree.parameters]
    parameters[2] = replace(parameters[2], shape=(size, 4))
    models = tuple(ModelInfo(each.name, "Linear", index, index + 1) for index, each in enumerate(modules))
    model = ev.ModelsFound(0.5, 0, models, tuple(modules), tuple(parameters))
    state = run(states, owned=(0, 1), model=model, reach="ee", grad_modes="gg", training=training, called=(1, 2))
    return then(state, ev.ModelCopied(0.6, 1, 2)) if is_copy and size == 4 else state


def second_optimizer(*parameters: int, steps: int = 20, groups_of: int = -1) -> RunState:
    """A run in which an Adam with these parameters makes so many steps beside the SGD of all parameters."""
    state = run()
    adam = OptimizerInfo("Adam", 1, parameters, 0, (0,) * len(parameters), groups_of=groups_of)
    return then(
        state,
        ev.OptimizersFound(1.0, 20, (state.optimizers[0], adam)),
        ev.Progress(1.0, 20 + steps, 20, 20, 0, (20, steps), (), 0.0, 1, 1),
    )


def state_of_frozen(*freezes: FreezeInForce, frozen: tuple[int, ...] = (0, 1)) -> RunState:
    """An optimizer keeps state of `a.weight` and `a.bias`, of which commands have frozen those with the indexes `frozen`."""
    unused = ev.OptimizerStateUnused(1.0, 40, A_PATHS, 2, 3 << 20, 12)
    return then(run(), unused, ev.FreezeStateChanged(1.0, 40, frozen, (), (), freezes))


LOADED = ev.StateLoaded(
    1.0, 0, number=1, module="Net", given=6, matched=0, expected=6, unexpected=("module.head.bias",), missing=("head.bias",),
    given_prefix="module.", expected_prefix="", would_match=6, frozen=(), frozen_tensors=0, are_own=False, is_loaded=False,
    site=None,
)  # fmt: skip
"""A load of which no key fits, because all have a prefix."""


def loaded(**changes: object) -> RunState:
    """A run after a call of `load_state_dict`."""
    return then(run(), replace(LOADED, **changes))  # type: ignore[arg-type]  # the caller names fields


def flagged(states: str, trainable: str, value: bool, *, module: int = 1, is_set_by_class: bool = False) -> RunState:
    """A plain attribute of the module `a`, or of the parameter `a.weight` where `module` is -1."""
    state = run(states, trainable)
    flag = ev.PlainFlag("requires_grad", value, module, -1 if module >= 0 else 0, is_set_by_class)
    return then(state, ev.FlagsFound(1.0, 1, (flag,), listing=state.tree.listing))


WRITER = found(Node("Net", "Net", (), (Node("table", "Embedding", (("weight", (4, 4)),)), linear("b"))))
"""Modules: Net, table, b."""


def written(name: str, trainable: str = "011", training: str = "111", grad_modes: str = "ggg") -> RunState:
    """The forward of `table` writes to its tensor of this name: `weight`, or the buffer `u`."""
    model = replace(WRITER, buffers=(BufferInfo("table.u", (4,), "float32", 4, 16, 1, persistent=True),))
    state = run("FTT", trainable, model=model, owned=(1, 2), training=training, grad_modes=grad_modes, reach="epp")
    return then(state, ev.OwnForwardWrites(2.0, 3, ((1, name),)))


def frozen_in_turns() -> RunState:
    """As `written("u")`, of a model whose first parameter was switched twice."""
    state = written("u")
    state.tree.switches[0] = 2
    return state


PAIR = found(
    Node("Net", "Net", (), (Node("student", "Part", (), (linear("a"),)), Node("teacher", "Part", (), (linear("a"),))))
)
"""Modules: Net, student, a, teacher, a."""
FOLLOWS = ev.AveragedCopyCompared(
    2.0, 30, copy=3, source=1, dtype="float32", since_step=1, is_called=True, buffers=("norm.running_mean",),
    tensors_changed=(1.0, 1.0), elements_changed=(1.0, 1.0), buffers_changed=(1.0, 1.0),
)  # fmt: skip


def averaged(**changes: object) -> RunState:
    """A run with an average of weights, which follows but for what is given."""
    state = run(
        "TTFF", "1100", model=PAIR, owned=(0, 1), reach="eeepp", grad_modes="ggggg", training="11111",
        called=(1, 2, 3, 4, 5),
    )  # fmt: skip
    return then(state, replace(FOLLOWS, **changes))  # type: ignore[arg-type]  # the caller names fields


def kept(*how: str, made: int = 8) -> RunState:
    """A run in which a `state_dict()` that is the live weights was `kept`, `loaded` or `saved`."""
    return then(run(), *(ev.StateAliased(1.0, 16, each, "Net", "best", 2, made, None) for each in how))


BLOCK = Node("block", "Adapted", (), (linear("base"), linear("up")))
ADAPTED = found(Node("Net", "Net", (), (BLOCK, linear("head"))))
"""Modules: Net, block, base, up, head. Parameters: two each of base, up, head."""


def left_at(
    last: int, states: str = "FFUUTT", trainable: str = "001111", rank: int = -1, samples: int = 8, every: int = 4
) -> RunState:
    """After step `last` there is no gradient in `samples` steps, `every` steps apart, whose norms are read."""
    state = run(
        states, trainable, model=ADAPTED, owned=(2, 3, 4, 5), steps=60, reach="eepee", grad_modes="ggggg",
        training="11111", called=(1, 2, 3, rank, 4),
    )  # fmt: skip
    for step in (*range(last - 3, last + 1), *range(last + every, last + 1 + samples * every, every)):
        norms = (None, None, *(0.5 if step <= last else None for _ in range(2)), 0.5, 0.5)
        then(state, ev.GradientsMeasured(1.0, step, 1.0, None, norms))
    return state


def masked(moved: int, *, by_hook: bool = True, is_deliberate: bool = True) -> RunState:
    """Three of four rows of `a.weight` have no gradient in six samples, and moved in so many of them."""
    return then(run(), ev.RowsMasked(2.0, 9, "a.weight", 4, 3, 6, moved, by_hook, is_deliberate))


ROWS: Table = {
    "GT110": (
        reports(
            "modules of two callers", lambda: unregistered(("Net", 20, 0), ("Net", 20, 0), ("a", 20, 5)),
            {"key": "Net", "evidence": {"modules": 2, "elements": 40}},
            {"key": "a", "evidence": {"modules": 1, "elements": 15}},
        ),
        quiet("frozen modules", lambda: unregistered(("Net", 0, 0))),
        quiet("modules of an optimizer", lambda: unregistered(("Net", 20, 20))),
        reports(
            "tensors of one container", lambda: lost_tensors("a.scales[0]", "a.scales[1]"),
            evidence={"holder": "a.scales", "tensors": 2, "elements": 16}, paths=("a.scales[0]", "a.scales[1]"),
            first_step=1, level=None,
        ),
        reports(
            "a result of an operation", lambda: lost_tensors("gate", operation="ToCopyBackward0"),
            evidence={"holder": "gate", "tensors": 1, "elements": 8},
        ),
        reports(
            "a tensor beside the model", lambda: lost_tensors("t", of_module=False, is_parameter=False, is_joined=True),
            level=Level.WARNING, paths=(),
        ),
        reports("a tensor that no variable holds", lambda: lost_tensors(None, of_module=False), numbers={"holder": None}),
        quiet("a tensor that may be an input", lambda: lost_tensors("x", of_module=False, is_parameter=False)),
    ),
    "GT111": (
        reports(
            "trainable parameters are never recomputed", lambda: run("UUTT", reach="e-e", grad_modes="grg"),
            paths=A_PATHS, evidence={"tensors": 2, "elements": 20},
        ),
        quiet("a frozen tower", lambda: run("CCTT", "0011", reach="e-e", grad_modes="grg")),
        quiet("recomputed modules", lambda: run("UUTT", reach="e-e")),
    ),
    "GT112": (
        reports(
            "all frozen", lambda: run("FFFF", "0000", steps=60),
            evidence={"steps": 60, "tensors": 4, "tensors_in_optimizers": 4},
        ),
        reports(
            "no gradient for what is trainable", lambda: run("UUFF", "1100", steps=60),
            evidence={"steps": 60, "trainable_tensors": 2, "tensors_in_optimizers": 4},
        ),
        reports(
            "no backward", without_backward, is_exact=True,
            evidence={"steps": 60, "trainable_tensors": 4, "tensors_in_optimizers": 4},
        ),
        reports(
            "backward fails", lambda: then(run(steps=2), ev.RunEnded(1.0, 2, 1, f"Traceback\n{NO_GRAPH}\n")),
            evidence={"steps": 2, "tensors": 4}, is_exact=True,
        ),
        quiet("another error", lambda: then(run(steps=2), ev.RunEnded(1.0, 2, 1, "RuntimeError: something else\n"))),
        quiet("some train", lambda: run("UUTT", steps=60)),
        quiet("nothing was sampled", lambda: run("----", steps=60)),
        quiet("flags are not known", lambda: run("FFFF", "----", steps=60)),
        quiet("gradients of zeros", lambda: run("ZZZZ", steps=60)),
        quiet("two steps", lambda: run("FFFF", "0000", steps=2, samples=2)),
    ),
    "GT113": (
        reports("two Parameters over one storage", lambda: shared((0, 1, 2, 3)), paths=("a.weight", "b.weight")),
        quiet("one of them is in no optimizer", lambda: shared((0, 1, 3))),
        quiet("frozen", lambda: shared((0, 1, 2, 3), "0000")),
        reports(
            "a copy of an embedding",
            lambda: then(run(), ev.WeightsUntied(1.0, 5, "embedding.weight", "head.weight", 1_600, 3)),
            level=Level.WARNING, paths=("embedding.weight", "head.weight"), first_step=3,
            evidence={"elements": 1600, "equal_step": 3, "different_step": 5},
        ),
    ),
    "GT114": (
        reports("a copy gets gradients", lambda: two_models("TTOO"), evidence={"tensors": 2, "elements": 20}),
        reports("a teacher in eval mode", lambda: two_models("TTOO", size=5, training="10"), paths=B_PATHS),
        reports("a copy that is renewed at each step", lambda: two_models("TTTT"), paths=B_PATHS),
        quiet("both in eval mode", lambda: two_models("TTOO", size=5, training="00")),
        quiet("another model", lambda: two_models("TTOO", size=5)),
        quiet("a copy without gradients", lambda: two_models("TTUU")),
        quiet("the same shapes, but no copy", lambda: two_models("TTOO", is_copy=False)),
    ),
    "GT115": (
        reports(
            "two optimizers of one module", lambda: second_optimizer(2, 3),
            paths=B_PATHS, evidence={"tensors": 2, "elements": 20}, level=None,
        ),
        quiet("one does not step", lambda: second_optimizer(2, 3, steps=0)),
        quiet("one with tensors of its own", lambda: second_optimizer()),
        quiet("an optimizer around another", lambda: second_optimizer(2, 3, groups_of=0)),
        reports(
            "state of frozen parameters",
            lambda: then(run(), ev.OptimizerStateUnused(1.0, 40, (*A_PATHS, *B_PATHS), 4, 3 << 20, 12)),
            paths=(*A_PATHS, *B_PATHS), first_step=12, evidence={"tensors": 4, "bytes": 3 << 20, "since_step": 12},
            command=None,
        ),
        quiet(
            "state that was used again", lambda: then(
                run(), ev.OptimizerStateUnused(1.0, 40, A_PATHS, 2, 3 << 20, 12), ev.OptimizerStateUnused(1.0, 41, (), 0, 0, 41)
            ),
        ),
        reports(
            "frozen by one command", lambda: state_of_frozen(FreezeInForce("a", (0, 1))), command="freeze a state=drop"
        ),
        reports(
            "frozen by two commands",
            lambda: state_of_frozen(FreezeInForce("a.weight", (0,)), FreezeInForce("a.bias", (1,))), command=None,
        ),
        reports(
            "frozen by words", lambda: state_of_frozen(FreezeInForce("all but b", (0, 1))), command=None
        ),
        reports(
            "one of them frozen by the script",
            lambda: state_of_frozen(FreezeInForce("a.weight", (0,)), frozen=(0,)), command=None,
        ),
    ),
    "GT116": (
        reports(
            "a prefix on all keys", loaded,
            level=Level.ERROR, paths=(), first_step=0,
            numbers={"matched_keys": 0, "expected_keys": 6, "would_match": 6, "given_prefix": "module."},
        ),
        reports("nothing was given", lambda: loaded(given=0, would_match=0), level=Level.WARNING),
        reports("its own tensors were given", lambda: loaded(matched=6, are_own=True, would_match=0), level=Level.WARNING),
        reports(
            "a frozen part was left out", lambda: loaded(matched=4, frozen=A_PATHS, frozen_tensors=2),
            level=Level.WARNING, paths=A_PATHS, numbers={"frozen_tensors": 2, "matched_keys": 4},
        ),
        reports(
            "a frozen part that fits nothing", lambda: loaded(matched=4, frozen=A_PATHS, frozen_tensors=2, would_match=0),
            level=Level.NOTE,
        ),
        reports(
            "most of what trains has another name", lambda: loaded(matched=2, would_match=4, fitting=A_PATHS),
            level=Level.WARNING, paths=A_PATHS, numbers={"would_match": 4, "matched_keys": 2},
        ),
        reports(
            "a filter has dropped other names",
            lambda: loaded(matched=1, would_match=4, fitting=A_PATHS, unexpected=(), file="/tmp/a.pt"), level=Level.WARNING,
        ),
        reports(
            "a filter has dropped other shapes",
            lambda: loaded(matched=1, would_match=0, unexpected=(), other_shapes=5, file="/tmp/a.pt"), level=Level.WARNING,
        ),
        reports(
            "a wrapper's name within", lambda: loaded(matched=4, would_match=2, fitting=A_PATHS),
            level=Level.WARNING, paths=A_PATHS,
        ),
        reports(
            "its own tensors were given, and the file fits", lambda: loaded(matched=6, are_own=True, file="/tmp/a.pt"),
            level=Level.WARNING,
        ),
        quiet("a head has another name", lambda: loaded(matched=4, would_match=2, given_prefix="fc.", fitting=A_PATHS)),
        quiet(
            "the script takes a part of a file",
            lambda: loaded(matched=2, would_match=4, given_prefix="old.", fitting=A_PATHS, unexpected=(), file="/tmp/a.pt"),
        ),
        quiet("a head has another shape", lambda: loaded(matched=4, would_match=0, unexpected=(), other_shapes=2, file="a")),
        quiet("a part that trains was left out", lambda: loaded(matched=4, would_match=0)),
        quiet("another load completes it", lambda: loaded(is_loaded=True)),
    ),
    "GT117": (
        reports(
            "parameters train below False", lambda: flagged("TTTT", "1111", value=False),
            paths=A_PATHS, evidence={"flag": "requires_grad", "value": False, "tensors": 2, "elements": 20},
        ),
        reports(
            "a flag of a parameter", lambda: flagged("TTTT", "1111", value=False, module=-1), paths=("a.weight",)
        ),
        reports("parameters are frozen below True", lambda: flagged("CCTT", "0011", value=True), paths=A_PATHS),
        quiet("True that the class sets", lambda: flagged("CCTT", "0011", value=True, is_set_by_class=True)),
        quiet("frozen below False", lambda: flagged("CCTT", "0011", value=False)),
        quiet("trained below True", lambda: flagged("TTTT", "1111", value=True)),
        quiet("one of them trains below True", lambda: flagged("CTTT", "0111", value=True)),
        # The class of the module may run it under no_grad, or have frozen it until some step.
        quiet("no gradient below False", lambda: flagged("UUTT", "1111", value=False)),
        quiet(
            "unfrozen below False", lambda: then(
                flagged("CCTT", "0011", value=False), ev.ParametersClassified(2.0, 9, "TTTT", "1111", "")
            ),
        ),
    ),
    "GT118": (
        reports("a weight in train mode", lambda: written("weight"), paths=("table.weight",), key="parameters"),
        reports("a weight in eval mode", lambda: written("weight", training="101"), paths=("table.weight",)),
        reports("a buffer in train mode", lambda: written("u"), paths=("table.u",), key="buffers"),
        quiet("a buffer in eval mode", lambda: written("u", training="101")),
        quiet("a buffer of a module that trains", lambda: written("u", trainable="111")),
        quiet("a weight that trains", lambda: written("weight", trainable="111")),
        quiet("a buffer of a target network", lambda: written("u", grad_modes="gng")),
        quiet("a weight of a target network", lambda: written("weight", grad_modes="gng")),
        quiet("a model that is frozen in turns", frozen_in_turns),
    ),
    "GT119": (
        reports(
            "buffers are left out", lambda: averaged(buffers_changed=(0.0, 1.0)),
            paths=("teacher",), evidence={"buffers": 1, "since_step": 1},
        ),
        reports(
            "rounding keeps it still",
            lambda: averaged(dtype="bfloat16", elements_changed=(0.05, 1.0), tensors_changed=(0.9, 1.0)),
            paths=("teacher",), evidence={"changed": 0.05, "changed_of_source": 1.0},
        ),
        quiet("it follows", averaged),
        quiet("no statistics", lambda: averaged(buffers_changed=(0.0, 0.0))),
        quiet("it never ran", lambda: averaged(buffers_changed=(0.0, 1.0), is_called=False)),
        quiet("a fixed teacher", lambda: averaged(buffers_changed=(0.0, 1.0), tensors_changed=(0.0, 1.0))),
        quiet("too early", lambda: averaged(buffers_changed=(0.0, 1.0), step=5)),
        quiet(
            "a fixed teacher in bfloat16",
            lambda: averaged(dtype="bfloat16", elements_changed=(0.0, 1.0), tensors_changed=(0.0, 1.0)),
        ),
        quiet("float32", lambda: averaged(elements_changed=(0.05, 1.0))),
    ),
    "GT120": (
        reports("loaded", lambda: kept("loaded"), evidence={"tensors": 2, "made_step": 8, "how": "loaded"}, level=None),
        reports("saved", lambda: kept("saved"), numbers={"how": "saved"}, level=None, first_step=16),
        reports("only kept", lambda: kept("kept"), level=Level.WARNING, key="kept"),
        reports("kept and loaded", lambda: kept("kept", "loaded"), key="loaded"),
        quiet("nothing is kept", run),
    ),
    "GT121": (
        reports(
            "an adapter is left merged", lambda: left_at(20),
            paths=("block.up.weight", "block.up.bias"), numbers={"last_step": 20}, level=None,
        ),
        reports("a branch rests", lambda: left_at(20, "TTUUTT", "111111"), level=Level.NOTE),
        quiet("a few steps ago", lambda: left_at(50, samples=5, every=2)),
        quiet("few samples", lambda: left_at(20, samples=3)),
        quiet("samples at once", lambda: left_at(20, every=1)),
        quiet("in use again", lambda: left_at(20, "FFTTTT")),
        quiet("nothing trains", lambda: left_at(20, "FFUUUU")),
        quiet("its module is in use", lambda: left_at(20, "FFUTTT", rank=4)),
    ),
    "GT122": (
        reports(
            "a hook masks rows that move", lambda: masked(2),
            paths=("a.weight",), level=None, evidence={"rows": 4, "rows_without_gradient": 3, "samples": 6},
        ),
        reports("the script masks rows that move", lambda: masked(2, by_hook=False), level=None),
        reports("units that may be dead", lambda: masked(5, is_deliberate=False), level=Level.NOTE),
        quiet("rows that moved once", lambda: masked(1)),
    ),
    "GT123": (
        reports(
            "matrices beside the weights", lambda: lora("lora_A", "lora_B"),
            paths=("layer.weight",), level=None, evidence={"layers": 1, "tensors": 1, "elements": 16, "elements_of_lora": 16},
        ),
        reports("matrices in a module", lambda: lora(within="lora"), paths=("layer.weight",)),
        reports("a type of the script", lambda: lora(kind="LoRALayer", within="down"), paths=("layer.weight",)),
        quiet("frozen weights", lambda: lora("lora_A", "lora_B", states="FFTTTT", trainable="001111")),
        quiet("another type", lambda: lora(kind="Exploration", within="down")),
        quiet("a token of a model with such a name", with_lora_in_name),
        quiet("a head beside them", lambda: with_lora_in_name("lora", (("A", (4, 2)), ("B", (2, 4))))),
        reports(
            "a weight beside them", lambda: with_lora_in_name("lora", (("A", (4, 2)), ("B", (2, 8)))), paths=("head.weight",),
        ),
        quiet("no such matrices", run),
    ),
}  # fmt: skip
