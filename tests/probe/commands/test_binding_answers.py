"""What a rank has accepted it carries out at the step, whatever it alone has measured since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from helpers.slow_store import Connection
from helpers.training import square_steps
from helpers.watched import Watched, watched
from torch import distributed, nn

from gradtui.protocol.agreement import Confirmation, Proposal
from gradtui.protocol.commands import (
    Command,
    SetCheckpointing,
    SetGroup,
    SetLearningRate,
    SetMode,
    SetTrainable,
    TrainOnly,
    Undo,
)
from gradtui.protocol.events import CommandApplied, CommandRejected, FreezeOverridden, ProposalAnswered
from gradtui.protocol.schedule import Scheduled
from gradtui.run.text import refusals

X = torch.linspace(-1, 1, 24).view(6, 4)


class DistributedDataParallel(nn.Module):
    """A wrapper by its name and its attributes."""

    find_unused_parameters = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        done: torch.Tensor = self.module(x)
        return done


@pytest.fixture(autouse=True)
def _two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)


def three_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))


def train(
    seen: Watched, trained: nn.Module, steps: int = 10, each: Callable[[int], object] = lambda step: None
) -> None:
    """Train; `each` is called before each step."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    seen.probe.dispatcher._boundary.agreement._store = Connection({})
    square_steps(trained, optimizer, X, steps, each)


def measures(seen: Watched, letters: str) -> None:
    """Let this rank have measured these states, now and later."""
    states = seen.probe.dispatcher._step_sampler.states
    found = {letter: frozenset(i for i, each in enumerate(letters) if each == letter) for letter in letters}
    states.indices_of = lambda state: found.get(state.value, frozenset())  # type: ignore[method-assign]


class Kept(set[int]):
    """Indexes that no measurement removes."""

    def __isub__(self, other: object) -> Kept:  # type: ignore[misc, override]
        return self


def proposes(seen: Watched, command: Callable[[int], Command], at_step: int) -> None:
    seen.submit(lambda id_: Proposal(1, command(id_), at_step))
    seen.submit(lambda id_: Confirmation(id_, 1))


def steps_and_reasons(seen: Watched) -> list[tuple[int, str]]:
    """The steps at which commands were carried out, and why others were not."""
    applied = [(event.step, "") for event in seen.all(CommandApplied)]
    return applied + [(event.step, event.reason) for event in seen.all(CommandRejected)]


def test_rank_accepts_only_what_leaves_something_training() -> None:
    trained = three_layers()
    with watched() as seen:

        def each(step: int) -> None:
            if step == 3:
                measures(seen, "TTTTUU")
                proposes(seen, lambda id_: SetTrainable(id_, ":.*[01]..*", False), 6)

        train(seen, trained, each=each)
    (answer,) = seen.all(ProposalAnswered)
    assert (answer.accepts, steps_and_reasons(seen)) == (False, [])


@pytest.mark.parametrize("what", ["unreached", "untried"])
def test_later_measurements_do_not_change_answered_command(what: str) -> None:
    trained = three_layers()
    with watched() as seen:

        def each(step: int) -> None:
            if step == 3:
                proposes(seen, lambda id_: SetTrainable(id_, "0", False), 6)
            if step == 5 and what == "unreached":
                measures(seen, "TTUUUU")
            if step == 5 and what == "untried":
                seen.probe.dispatcher.trainability._training.untried = Kept({2, 3, 4, 5})

        train(seen, trained, each=each)
    (answer,) = seen.all(ProposalAnswered)
    assert answer.accepts
    assert steps_and_reasons(seen) == [(6, "")]


def test_ranks_freeze_same_parameters_despite_seen_switches() -> None:
    outcomes = []
    for switched in ((), (0, 1)):
        trained = three_layers()
        trained[0].requires_grad_(False)  # type: ignore[index]
        with watched() as seen:

            def each(step: int, seen: Watched = seen, switched: tuple[int, ...] = switched) -> None:
                if step == 3:
                    seen.probe.dispatcher._step_sampler.states.switched = Counter(switched)
                    proposes(seen, lambda id_: TrainOnly(id_, "2"), 6)

            train(seen, trained, each=each)
        outcomes.append([event.parameters for event in seen.all(CommandApplied)])
    assert outcomes == [[(2, 3)]] * 2


def test_schedule_of_all_ranks_depends_on_no_measurement() -> None:
    wrapped = DistributedDataParallel(three_layers())
    entries = tuple(
        Scheduled(step, SetTrainable(step, "module.0", trainable)) for step, trainable in ((3, False), (6, True))
    )
    with watched(schedule=entries, ranks_agree=True) as seen:
        # A rank that has found the parameters unreached would not unfreeze them: they did not train before the freeze.
        train(seen, wrapped, each=lambda step: measures(seen, "UUTTTT") if step == 3 else None)
    assert steps_and_reasons(seen) == [(3, ""), (6, "")]


def test_parameter_set_back_by_script_keeps_flag() -> None:
    """Ranks look at flags at different steps: if each froze it again at a step of its own, gradients would differ."""
    trained = three_layers()
    parameter = next(trained.parameters())
    values: list[torch.Tensor] = []
    flags: list[bool] = []
    with watched() as seen:

        def each(step: int) -> None:
            if step == 2:
                proposes(seen, lambda id_: SetTrainable(id_, "0", False), 4)
            if step == 6:
                parameter.requires_grad_(True)
            values.append(parameter.detach().clone())
            flags.append(parameter.requires_grad)

        train(seen, trained, 12, each)
    assert [bool(torch.equal(values[5], value)) for value in values[5:]] == [True] * 7
    assert flags == [True] * 5 + [False] + [True] * 6
    assert seen.all(FreezeOverridden)[0].given_up is None


def test_change_overtaken_by_script_is_refused_at_step() -> None:
    trained = three_layers()
    with watched() as seen:

        def each(step: int) -> None:
            if step == 3:
                proposes(seen, lambda id_: SetTrainable(id_, "0", False), 6)
            if step == 5:
                trained[0].requires_grad_(False)  # type: ignore[index]

        train(seen, trained, each=each)
    assert steps_and_reasons(seen) == [(6, refusals.already("0", "frozen"))]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            lambda id_: SetMode(id_, "module.9", False),
            "there is no module or parameter 'module.9'; did you mean module.3 or module.2 or module.1?",
        ),
        (lambda id_: SetMode(id_, "module.0", True), refusals.already("module.0", "in training mode")),
        (
            lambda id_: SetGroup(id_, 0, 7, 0.1),
            "there is no such param group; there is optimizer=0 group=0 (SGD) has learning rate 0.1",
        ),
        (lambda id_: SetGroup(id_, 0, 0, 0.1), refusals.ALREADY_SO),
        (lambda id_: SetLearningRate(id_, "module.0", 0.1), refusals.ALREADY_SO),
        (lambda id_: TrainOnly(id_, "module.2"), refusals.FREEZE_UNDER_DDP),
        (lambda id_: SetCheckpointing(id_, "module.0", False), refusals.ALREADY_SO),
        (lambda id_: SetCheckpointing(id_, "", True), refusals.WHOLE_MODEL),
        (lambda id_: SetCheckpointing(id_, "module.3", True), refusals.communicates("Quiet")),
        (Undo, refusals.NOTHING_TO_UNDO),
    ],
)
def test_rank_says_beforehand_what_it_cannot_do(command: Callable[[int], Command], why: str) -> None:
    wrapped = DistributedDataParallel(three_layers().append(nn.Sequential(Quiet(2))))  # type: ignore[operator]
    wrapped.find_unused_parameters = False
    with watched() as seen:
        train(seen, wrapped, 6, each=lambda step: proposes(seen, command, 5) if step == 3 else None)
    (answer,) = seen.all(ProposalAnswered)
    assert (answer.accepts, answer.reason) == (False, why)
    assert steps_and_reasons(seen) == []


class Quiet(nn.SyncBatchNorm):
    """It is not called with several ranks here."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input
