"""A schedule replayed: the same run, to the bit, as the session that it was written down from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from helpers.examples import examples
from helpers.toggling import X, bits, freeze, small, step, unfreeze
from helpers.training import square_step
from helpers.watched import Watched, watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from gradtui.probe.commands.schedule.replayed_schedule import ReplayedSchedule
from gradtui.probe.runtime.outcome import RunStopped
from gradtui.protocol.commands import Command, SetMode, SetTrainable, StopTraining, TrainOnly, Undo
from gradtui.protocol.events import CommandApplied, CommandRejected, ScheduleNoted
from gradtui.protocol.schedule import Scheduled
from gradtui.records.export.schedule_file import load, schedule_text

Make = Callable[[int], Command]
STEPS = 12


def entry(at: int, command: Command, *, skipped: int = 0, late: bool = False) -> Scheduled:
    return Scheduled(at, command, skipped, late, f"entry (step {at})")


def session(train: Callable[[Callable[[int], None]], nn.Module], asked: Mapping[int, Sequence[Make]]) -> Watched:
    """Train, and ask before the iterations of these numbers."""
    with watched(budget=0.01) as seen:
        train(lambda number: [seen.submit(make) for make in asked.get(number, ())])
    return seen


def replayed(
    train: Callable[[Callable[[int], None]], nn.Module], entries: Sequence[Scheduled], *, budget: float = 0.01
) -> tuple[dict[str, list[float]], Watched]:
    with watched(budget=budget) as seen:
        seen.probe.dispatcher.schedule = ReplayedSchedule(entries)
        model = train(lambda number: None)
    seen.probe.dispatcher.finish(seen.probe.counter.steps)
    return bits(model), seen


def check(train: Callable[[Callable[[int], None]], nn.Module], asked: Mapping[int, Sequence[Make]], file: Path) -> str:
    """Session, file, replay: the same answers at the same steps, and the same weights."""
    models: list[nn.Module] = []

    def kept(before: Callable[[int], None]) -> nn.Module:
        models.append(train(before))
        return models[-1]

    seen = session(kept, asked)
    text = schedule_text(seen.state, "train.py")
    file.write_text(text, encoding="utf-8")
    again, replay = replayed(train, load(file))
    assert [(e.step, e.skipped, e.text) for e in replay.all(CommandApplied)] == [
        (e.step, e.skipped, e.text) for e in seen.all(CommandApplied)
    ]
    assert again == bits(models[0])
    assert replay.all(ScheduleNoted) == []
    return text


def stopped(
    train: Callable[[Callable[[int], None]], nn.Module], entries: Sequence[Scheduled]
) -> tuple[object, Watched]:
    """The exit code that a schedule ends a run with."""
    with watched() as seen:
        seen.probe.dispatcher.schedule = ReplayedSchedule(entries)
        try:
            train(lambda number: None)
        except RunStopped as stop:
            code = stop.code
    seen.probe.dispatcher.finish(seen.probe.counter.steps)
    return code, seen


def plain(make: Callable[..., torch.optim.Optimizer], **options: object):
    def train(before: Callable[[int], None]) -> nn.Module:
        model = small()
        optimizer = make(model.parameters(), **options)
        for number in range(STEPS):
            before(number)
            step(model, optimizer, to_none=False)
        return model

    return train


def gan(before: Callable[[int], None]) -> nn.Module:
    """Two optimizers in turn: every second boundary is the other's."""
    torch.manual_seed(0)
    both = nn.ModuleDict({"g": nn.Linear(4, 4), "d": nn.Linear(4, 2)})
    first, second = (torch.optim.Adam(both[name].parameters(), lr=0.05) for name in "gd")
    for number in range(STEPS):
        for turn, optimizer in enumerate((second, first)):
            before(2 * number + turn)
            square_step(both["d"], optimizer, both["g"](X))
    return both


def accumulating(before: Callable[[int], None]) -> nn.Module:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(STEPS):
        before(number)
        for _ in range(3):
            model(X + number).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def one(selection: str) -> Make:
    return lambda id_: TrainOnly(id_, selection)


@pytest.mark.parametrize(
    "train",
    [plain(torch.optim.Adam, lr=0.01), plain(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1), accumulating],
    ids=["adam", "momentum", "accumulating"],
)
def test_a_session_is_replayed_to_the_bit(train, tmp_path: Path) -> None:
    asked = {
        0: [freeze("0")],
        2: [freeze("*.bias"), unfreeze("0.bias")],
        5: [Undo, one(":head")],
        7: [Undo],
        9: [unfreeze(":all"), freeze("re:^2\\.")],
    }
    text = check(train, asked, tmp_path / "s.toml")
    assert text.count("[[do]]") == 8
    assert 'path = "re:^2\\\\."' in text


def test_boundaries_of_several_optimizers_are_told_apart(tmp_path: Path) -> None:
    text = check(gan, {7: [freeze("d.weight")], 12: [unfreeze("d")]}, tmp_path / "s.toml")
    assert [line for line in text.splitlines() if line.startswith("step")] == ["step = 7", "step = 12"]
    earlier = [entry(6, SetTrainable(-1, "d.weight", False)), entry(12, SetTrainable(-2, "d", True))]
    assert replayed(gan, earlier)[0] != replayed(gan, load(tmp_path / "s.toml"))[0]


def test_act_after_scaler_skip_is_replayed_there(tmp_path: Path) -> None:
    def train(before: Callable[[int], None]) -> nn.Module:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number in range(STEPS):
            before(number)
            optimizer.zero_grad()
            loss = model(X).square().mean() * (float("inf") if number in (4, 5) else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return model

    text = check(train, {5: [freeze("0")], 6: [freeze("2")], 9: [unfreeze("0")]}, tmp_path / "s.toml")
    assert [line for line in text.splitlines() if line.startswith(("step", "skipped"))] == [
        "step = 4", "skipped = 1", "step = 4", "skipped = 2", "step = 7",
    ]  # fmt: skip


TOGGLES = st.tuples(st.booleans(), st.sampled_from(["0", "2", "4", "0.weight", "*.bias", ":head", "2, 4.bias", ":all"]))


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.dictionaries(
        st.integers(0, STEPS - 1), st.lists(st.one_of(st.none(), TOGGLES), min_size=1, max_size=3), max_size=5
    )
)
def test_whatever_was_done_is_done_again(asked, tmp_path: Path) -> None:
    makes = {
        at: [Undo if what is None else (unfreeze if what[0] else freeze)(what[1]) for what in each]
        for at, each in asked.items()
    }
    check(plain(torch.optim.AdamW, lr=0.01), makes, tmp_path / "s.toml")


def test_schedule_leaves_unneeded_steps_unwatched() -> None:
    def long(before: Callable[[int], None]) -> nn.Module:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(400):
            step(model, optimizer)
        return model

    _, seen = replayed(long, [entry(391, SetTrainable(-1, "0", False))], budget=1e-6)
    (applied,) = seen.all(CommandApplied)
    assert applied.step == 391


def test_unknown_name_stops_run_before_first_step() -> None:
    model = small()
    before = bits(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    code, seen = stopped(lambda _: step(model, optimizer), [entry(5, SetTrainable(-1, "0.wieght", False))])
    assert code == 2
    assert bits(model) == before
    (noted,) = seen.all(ScheduleNoted)
    assert noted.failed
    assert noted.text.startswith("entry (step 5): ")
    assert "did you mean 0.weight" in noted.text
    assert noted.text.endswith("; the run was stopped before its first step")


def test_name_of_later_model_waits_for_its_time(tmp_path: Path) -> None:
    def train(before: Callable[[int], None]) -> nn.Module:
        first = small()
        optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
        for number in range(4):
            before(number)
            step(first, optimizer)
        model = nn.Sequential()
        model.inner, model.top = first, nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4, 8):
            before(number)
            step(model, optimizer)
        return model

    text = check(train, {1: [freeze("0")], 5: [freeze("top")]}, tmp_path / "s.toml")
    assert text.count("late = true") == 1


def test_refused_entry_stops_run_unless_already_so() -> None:
    entries = [
        entry(1, SetTrainable(-1, "0", True)),
        entry(2, SetTrainable(-2, ":all", False)),
        entry(3, SetTrainable(-3, "0", False)),
    ]
    code, seen = stopped(plain(torch.optim.SGD, lr=0.1), entries)
    assert code == 2
    assert seen.probe.counter.steps == 2
    assert [rejected.command.id for rejected in seen.all(CommandRejected)] == [-1, -2]
    (noted,) = seen.all(ScheduleNoted)
    assert noted.text.startswith("entry (step 2): cannot freeze :all: ")


def test_irreversible_entry_is_passed_over_as_recorded(tmp_path: Path) -> None:
    def train(before: Callable[[int], None]) -> nn.Module:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for number in range(STEPS):
            before(number)
            model.train()
            step(model, optimizer)
        return model

    def evaluate(number: int) -> Command:
        return SetMode(number, "1", False)

    # The script's own train() is in between: only the latest two of three could not be taken back.
    text = check(train, {2: [freeze("0")], 4: [evaluate], 5: [evaluate], 7: [Undo, Undo, Undo]}, tmp_path / "s.toml")
    assert text.count('command = "undo"') == 1


@pytest.mark.parametrize("undone", [False, True])
def test_resumed_script_is_replayed_too(undone: bool, tmp_path: Path) -> None:
    def train(before: Callable[[int], None]) -> nn.Module:
        model = small()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for number in range(STEPS):
            before(number)
            step(model, optimizer)
        return model

    file = tmp_path / "s.toml"
    ends, weights = [], []
    for again in (False, True):
        with watched() as seen:
            if again:
                seen.probe.dispatcher.schedule = ReplayedSchedule(load(file))
            seen.probe.dispatcher.saved_freezes.load(("0.weight", "2.bias"), ())
            asks = undone and not again
            weights.append(bits(train(lambda n, s=seen, asks=asks: s.submit(Undo) if asks and n == 6 else None)))
        if not again:
            file.write_text(schedule_text(seen.state, "train.py"), encoding="utf-8")
        ends.append([(event.step, event.text) for event in seen.all(CommandApplied)])
    assert ends[0] == ends[1]
    assert len(ends[0]) == 1 + undone
    assert weights[0] == weights[1]


def test_unreached_entries_are_told_at_end() -> None:
    entries = [entry(at, SetTrainable(-at - 1, "0", at == 900)) for at in (3, 900)]
    _, seen = replayed(plain(torch.optim.SGD, lr=0.1), entries)
    (noted,) = seen.all(ScheduleNoted)
    assert not noted.failed
    assert noted.text.startswith("1 of 2 entries never reached")


def test_a_run_can_be_stopped_by_its_schedule() -> None:
    code, seen = stopped(plain(torch.optim.SGD, lr=0.1), [entry(3, StopTraining(-1))])
    assert (code, seen.probe.counter.steps) == (0, 3)
