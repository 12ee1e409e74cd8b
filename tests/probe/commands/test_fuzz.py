"""Whatever a person asks for, in whatever order, of whatever model in whatever loop: what must always hold, holds."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.examples import examples
from helpers.loops import LOOPS, UNSUITED
from helpers.summaries import summarised
from helpers.values import assert_equal
from helpers.watched import Watched, watched
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, UninitializedTensorMixin
from zoo import SPECIMENS

from gradtui.probe.commands.returns.state_keeping import StateKeeping
from gradtui.probe.runtime.outcome import RunStopped
from gradtui.protocol import commands as cmd
from gradtui.protocol.events import CommandApplied, CommandRejected
from gradtui.records.export import schedule_file
from gradtui.run.state.tree.row_ranges import ranges_of
from gradtui.transport.in_process import CommandQueue

STEPS = 6
MODELS = (
    "mlp", "conv_batchnorm", "dropout", "unused_branch", "frozen_encoder_with_prompt", "lora", "frozen_prefix",
    "shared_module", "containers", "weight_normalised", "under_no_grad", "checkpointed", "inplace_residual", "lazy",
)  # fmt: skip
"""Those of the zoo that train fast and say the most."""

Make = Callable[[int], cmd.Command]

PATHS = st.one_of(
    st.integers(0, 40),
    st.sampled_from(
        ["", "*", "*.bias", "**.weight", ":norms", ":head", ":last-2-blocks", "no.such.thing", "a b [", "{", "\x00"]
    ),
)
"""A place among the model's own paths, or a word."""
FILES = st.sampled_from(["", "no/such/folder/x.pt", "/dev/full", "/dev/null/x", "x\0y"])
"""Names of files that cannot be written; an empty one is for the run to choose."""


def of(kind: Callable[..., cmd.Command], *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Make]:
    """Commands of a kind with these values after its id."""
    return st.tuples(*values).map(lambda found: lambda id_: kind(id_, *found))


OBSERVING: dict[type[cmd.Command], st.SearchStrategy[Make]] = {
    cmd.VerifyFreeze: of(cmd.VerifyFreeze),
    cmd.Pause: of(cmd.Pause),
    cmd.Resume: of(cmd.Resume),
    cmd.RunSteps: of(cmd.RunSteps, st.integers(1, 3)),
    cmd.RunTo: of(cmd.RunTo, st.integers(0, STEPS + 2)),
    cmd.TraceStep: of(cmd.TraceStep),
    cmd.PauseAtBadStep: of(cmd.PauseAtBadStep, st.booleans()),
    cmd.SetBreakpoint: of(
        cmd.SetBreakpoint,
        st.sampled_from(["step", "loss", "norm", "lr", "memory", "peak", "finding"]),
        st.sampled_from([0.0, 2.0, 1e9, float("nan")]),
        st.booleans(),
        st.sampled_from(["", "GT203"]),
    ),
    cmd.ClearBreakpoint: of(cmd.ClearBreakpoint, st.integers(0, 20)),
    cmd.FollowMicroSteps: of(cmd.FollowMicroSteps, st.booleans()),
    cmd.Watch: of(cmd.Watch, st.lists(PATHS, max_size=3).map(tuple)),
    cmd.TraceGradient: of(cmd.TraceGradient, PATHS),
    cmd.ShowRank: of(cmd.ShowRank, st.integers(0, 3)),
    cmd.SaveAllocatorSnapshot: of(cmd.SaveAllocatorSnapshot),
    cmd.KeepState: of(cmd.KeepState, st.sampled_from(["", "good"]), FILES, st.booleans()),
    cmd.EndTry: of(cmd.EndTry, st.integers(0, 3)),
    cmd.ForgetState: of(cmd.ForgetState, st.integers(0, 4)),
    cmd.RenameState: of(cmd.RenameState, st.integers(0, 4), st.sampled_from(["", "good"])),
    cmd.SaveState: of(cmd.SaveState, st.integers(0, 4), FILES, st.booleans()),
    cmd.SaveBatch: of(cmd.SaveBatch, FILES, st.booleans()),
    cmd.SaveCheckpoint: of(cmd.SaveCheckpoint, FILES),
}
"""What changes nothing of the script's."""

RATES = st.one_of(st.none(), st.sampled_from([0.0, 1e-3, 0.05, -1.0, float("nan"), float("inf")]))
CHANGING: dict[type[cmd.Command], st.SearchStrategy[Make]] = {
    cmd.SetTrainable: of(
        cmd.SetTrainable, PATHS, st.booleans(), st.sampled_from(["keep", "offload", "drop"]), st.booleans()
    ),
    cmd.SetRowsTrainable: of(
        cmd.SetRowsTrainable, PATHS, st.booleans(), st.sampled_from(["0", ":2", "1:", "-1", "0,2:4", ":", "99", "x"])
    ),
    cmd.TakeUpFreezes: of(
        cmd.TakeUpFreezes,
        st.lists(PATHS, max_size=2).map(tuple),
        st.lists(PATHS, max_size=2).map(tuple),
        st.lists(st.sampled_from(["0.weight 0:2", "no.such.thing 1", "x"]), max_size=2).map(tuple),
    ),
    cmd.SetCheckpointing: of(cmd.SetCheckpointing, PATHS, st.booleans()),
    cmd.SetMode: of(cmd.SetMode, PATHS, st.booleans()),
    cmd.SetGroup: of(cmd.SetGroup, st.integers(0, 2), st.integers(0, 2), RATES, RATES),
    cmd.SetLearningRate: of(cmd.SetLearningRate, PATHS, RATES.filter(lambda rate: rate is not None)),
    cmd.ZeroGradients: of(cmd.ZeroGradients),
    cmd.TrainOnly: of(cmd.TrainOnly, PATHS),
    cmd.SkipStep: of(cmd.SkipStep),
    cmd.Undo: of(cmd.Undo),
    cmd.TryChange: of(
        cmd.TryChange,
        st.lists(
            st.sampled_from(["freeze 0", "freeze **.weight; set-mode 0 off", "train-only :head", "x"]), max_size=2
        ).map(tuple),
        st.sampled_from([2, 10]),
        st.sampled_from(["none", "better", "ask"]),
        st.booleans(),
    ),
    cmd.ReturnToState: of(
        cmd.ReturnToState, st.integers(-1, STEPS), st.integers(0, 4), st.sampled_from(["", "NaN"]), st.booleans()
    ),
}
STOPPING: dict[type[cmd.Command], st.SearchStrategy[Make]] = {cmd.StopTraining: of(cmd.StopTraining)}

Asked = tuple[int, Make]
"""When, by the number of the batch, and what."""


def sequences(*kinds: dict[type[cmd.Command], st.SearchStrategy[Make]]) -> st.SearchStrategy[list[Asked]]:
    """Commands at moments of a run."""
    every = [strategy for each in kinds for strategy in each.values()]
    return st.lists(st.tuples(st.integers(0, STEPS), st.one_of(every)), max_size=14)


PAIRS = [(loop, model) for loop in LOOPS for model in MODELS if model not in UNSUITED.get(loop, ())]


class Person(CommandQueue):
    """Sends what is asked for; while the run is held a few more of it, and then lets it continue."""

    def __init__(self, while_held: Sequence[Make]) -> None:
        super().__init__()
        self._left = iter(while_held)
        self.sent: list[cmd.Command] = []

    def submit(self, make: Make) -> cmd.Command:
        self.sent.append(command := super().submit(make))
        return command

    def wait(self, seconds: float) -> None:
        del seconds
        for make in islice(self._left, 2):
            self.submit(make)
        self.submit(cmd.Resume)


@dataclass
class Frozen:
    """What each parameter was when it was first seen frozen by a command."""

    values: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    """The same of rows, by path and rows."""

    def check(self, seen: Watched, model: nn.Module) -> None:
        """Compare what is in force now."""
        freezes, tree = seen.state.tree.freezes, seen.state.tree
        now = {} if freezes is None else {tree.parameters[i].path: i for i in freezes.frozen}
        named = dict(model.named_parameters(remove_duplicate=False))
        self.values = {path: value for path, value in self.values.items() if path in now}
        for path in now:
            # A second model that a loop makes has parameters of its own.
            parameter = named.get(path)
            if parameter is None or isinstance(parameter, nn.parameter.UninitializedParameter):
                continue
            value = self.values.setdefault(path, parameter.detach().clone())
            assert value.shape == parameter.shape
            assert torch.equal(value, parameter.detach()), f"{path} moved while it was frozen"
        rows = {(tree.parameters[i].path, each.rows) for i, each in tree.frozen_rows.items()}
        self.rows = {key: value for key, value in self.rows.items() if key in rows}
        for path, text in rows:
            if (parameter := named.get(path)) is not None:
                indexes = [row for first, last in ranges_of(text, parameter.shape[0]) for row in range(first, last)]
                value = self.rows.setdefault((path, text), parameter.detach()[indexes].clone())
                assert torch.equal(value, parameter.detach()[indexes]), f"{text} of {path} moved while frozen"


@dataclass
class Ran:
    """What came of a run."""

    model: nn.Module
    seen: Watched | None
    stopped: bool
    batches: int


def resolve(made: cmd.Command, names: Sequence[str]) -> cmd.Command:
    """Put the model's own paths in the place of numbers."""

    def path(value: object) -> object:
        return names[value % len(names)] if isinstance(value, int) and not isinstance(value, bool) else value

    changes: dict[str, Any] = {}
    for name in ("path", "selection"):
        if hasattr(made, name):
            changes[name] = path(getattr(made, name))
    for name in ("frozen", "holding", "parameters"):
        if hasattr(made, name):
            changes[name] = tuple(map(path, getattr(made, name)))
    return type(made)(**{field_: changes.get(field_, getattr(made, field_)) for field_ in made.__dataclass_fields__})


def train(pair: tuple[str, str], asked: list[Asked], while_held: Sequence[Make] = (), *, watch: bool = True) -> Ran:
    """Train a specimen of the zoo, and ask for things as its batches are taken."""
    loop, name = pair
    specimen = SPECIMENS[name]()
    names = [path for path, _ in specimen.model.named_modules()]
    names += [path for path, _ in specimen.model.named_parameters(remove_duplicate=False)]
    frozen, torch_state = Frozen(), torch.get_rng_state()
    torch.manual_seed(11)
    ran = Ran(specimen.model, None, False, 0)

    def known(make: Make) -> Make:
        return lambda id_: resolve(make(id_), names)

    person = Person([known(make) for make in while_held])

    def batch(seed: int) -> tuple[Tensor, ...]:
        ran.batches += 1
        if ran.seen is not None:
            frozen.check(ran.seen, specimen.model)
            for at, make in asked:
                # Which parameters a loss reaches is known after the first step only: before it nothing refuses to freeze all.
                if max(at, name in ("under_no_grad", "unused_branch")) == ran.batches - 1:
                    ran.seen.submit(known(make))
        return specimen.batch(seed)

    with watched(commands=person) if watch else contextlib.nullcontext() as seen:
        ran.seen = seen
        try:
            LOOPS[loop](specimen.model, batch, specimen.loss, STEPS)
        except RunStopped:
            ran.stopped = True
        if seen is not None:
            frozen.check(seen, specimen.model)
    torch.set_rng_state(torch_state)
    return ran


def check(ran: Ran, written: Path) -> None:
    """What must hold of any run."""
    seen = ran.seen
    assert seen is not None
    # A return undoes by commands of its own, whose id is 0.
    answers = [each.command.id for each in seen.all(CommandApplied) + seen.all(CommandRejected) if each.command.id]
    assert len(answers) == len(set(answers))
    assert set(answers) <= {command.id for command in seen.commands.sent}  # type: ignore[attr-defined]
    if ran.stopped:
        assert any(isinstance(command, cmd.StopTraining) for command in seen.commands.sent)  # type: ignore[attr-defined]
    state = seen.state
    assert state.problems == {}
    assert len(state.tree.states) == len(state.tree.trainable) == len(state.tree.parameters)
    for rejected in seen.all(CommandRejected):
        assert rejected.reason
        assert "Traceback" not in rejected.reason
    json.dumps(summarised(state), allow_nan=True)
    if state.interventions:
        written.write_text(schedule_file.schedule_text(state, "python train.py"), encoding="utf-8")
        schedule_file.load(written)
    for module in ran.model.modules():
        assert not [name for name in vars(module) if "gradtui" in name]
        assert "__call__" not in vars(module)
        assert "forward" not in vars(module)
    for parameter in ran.model.parameters():
        assert not vars(parameter)


def settings_of(few: int) -> Callable[..., Any]:
    health = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
    return settings(max_examples=examples(few), suppress_health_check=health)


def test_every_command_is_tried() -> None:
    known = {each for each in vars(cmd).values() if isinstance(each, type) and issubclass(each, cmd.Command)}
    assert {*OBSERVING, *CHANGING, *STOPPING} == known - {cmd.Command, cmd.Intervention}


@pytest.mark.slow
@pytest.mark.timeout(10 * examples(60))
@settings_of(60)
@given(
    st.sampled_from(PAIRS),
    sequences(OBSERVING, CHANGING, STOPPING),
    st.lists(st.one_of(*CHANGING.values()), max_size=4),
)
def test_any_sequence_of_commands(
    tmp_path_factory: pytest.TempPathFactory, pair: tuple[str, str], asked: list[Asked], while_held: list[Make]
) -> None:
    ran = train(pair, asked, while_held)
    check(ran, tmp_path_factory.getbasetemp() / "fuzzed.toml")
    left = [weakref.ref(parameter) for parameter in ran.model.parameters()]
    # A script that is stopped within a backward never takes its own hooks off, and autograd's are no garbage to Python.
    if not (ran.stopped and pair[0] == "step_in_backward"):
        del ran
        gc.collect()
        assert [reference() for reference in left if reference() is not None] == []


@pytest.mark.slow
@pytest.mark.timeout(10 * examples(40))
@settings_of(40)
@given(st.sampled_from(PAIRS), sequences(OBSERVING), st.lists(st.one_of(*OBSERVING.values()), max_size=4))
def test_what_only_observes_changes_no_bit(pair: tuple[str, str], asked: list[Asked], while_held: list[Make]) -> None:
    assume(asked)
    ours, alone = train(pair, asked, while_held), train(pair, [], watch=False)
    assert not ours.stopped
    assert ours.batches == alone.batches
    theirs = alone.model.state_dict()
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    for one, other in zip(ours.model.parameters(), alone.model.parameters()):
        assert one._version == other._version
        assert (one.grad is None) == (other.grad is None)


class Snapshots:
    """What the run is at each kept state, by other means than gradtui's, and whether each return makes it so again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._kept: dict[int, Any] = {}
        self.returns = 0
        keep, return_to = StateKeeping._keep, StateKeeping.return_to

        def kept(keeping: StateKeeping, *args: Any, **options: Any) -> Any:
            state = keep(keeping, *args, **options)
            self._kept[state.number] = values_of(keeping)
            return state

        def returned(keeping: StateKeeping, command: cmd.ReturnToState) -> Any:
            number = keeping.refuse(command).number
            result = return_to(keeping, command)
            assert_equal(values_of(keeping), self._kept[number])
            self.returns += 1
            return result

        monkeypatch.setattr(StateKeeping, "_keep", kept)
        monkeypatch.setattr(StateKeeping, "return_to", returned)


def values_of(keeping: StateKeeping) -> Any:
    """Return copies of everything that makes the run, through the public API of torch."""
    models, optimizers = keeping._models(), keeping._view.live_optimizers()
    parameters = [
        each for model in models for each in model.parameters() if not isinstance(each, UninitializedParameter)
    ]
    tensors = [each for model in models for each in (*model.parameters(), *model.buffers())]
    return deepcopy(
        {
            "tensors": [each.detach() for each in tensors if not isinstance(each, UninitializedTensorMixin)],
            "gradients": [each.grad for each in parameters],
            "flags": [each.requires_grad for each in parameters],
            "modes": [module.training for model in models for module in model.modules()],
            "optimizers": [each.state_dict() for each in optimizers],
            "schedulers": [
                {name: value for name, value in each.state_dict().items() if isinstance(value, (int, float, list))}
                for each in keeping.schedulers()
            ],
            "random": (torch.get_rng_state(), random.getstate()),
        }
    )


RETURNING = {
    **CHANGING,
    cmd.KeepState: of(cmd.KeepState, st.just("")),
    cmd.ReturnToState: of(cmd.ReturnToState, st.just(-1), st.integers(1, 4)),
}


@pytest.mark.slow
@pytest.mark.timeout(10 * examples(60))
@settings_of(60)
@given(st.sampled_from(PAIRS), sequences(RETURNING, *[{cmd.ReturnToState: RETURNING[cmd.ReturnToState]}] * 6))
def test_each_return_makes_everything_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, pair: tuple[str, str], asked: list[Asked]
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        snapshots = Snapshots(monkeypatch)
        ran = train(pair, asked)
    event(f"{min(snapshots.returns, 3)} returns")
    check(ran, tmp_path_factory.getbasetemp() / "returned.toml")
