"""Schedule files: written so that they are read back as what was done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.codec import BadEntry
from gradtui.protocol.commands import Command, SetCheckpointing, SetTrainable, TrainOnly, Undo
from gradtui.protocol.events import CommandApplied, RunStarted
from gradtui.records.export.schedule_file import InterventionFiles, load, plan_text, schedule_text
from gradtui.run.reducer import apply
from gradtui.run.reducer.results import INTERVENTIONS_KEPT
from gradtui.run.state.run_state import ModelChange, RunState

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
DONE = st.lists(
    st.tuples(
        st.integers(0, 10**9),
        st.one_of(st.builds(SetTrainable, st.just(1), TEXT, st.booleans()), st.builds(TrainOnly, st.just(1), TEXT)),
        TEXT,
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=4,
)

HEXADECIMAL = "0x" + "f" * 5_000
"""A number that Python reads, but does not write in decimal digits."""


def state_of(done: list[tuple[int, Command, str, int, bool]]) -> RunState:
    state = RunState()
    apply(state, RunStarted(0.0, 0, "train me.py", (), 1, "cpu", "l", "2", None))
    for step, command, text, skipped, late in done:
        apply(state, CommandApplied(0.0, step, command, text, (), (), skipped, late))
    return state


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schedules") / "s.toml"


@given(done=DONE)
def test_what_is_written_is_read_back(done: list[tuple[int, Command, str, int, bool]], file: Path) -> None:
    file.write_text(schedule_text(state_of(done), "train.py"), encoding="utf-8")
    entries = load(file)
    assert [(entry.step, entry.skipped, entry.late) for entry in entries] == [(d[0], d[3], d[4]) for d in done]
    for entry, (_, command, *_) in zip(entries, done):
        fields = [name for name in ("path", "selection", "trainable") if hasattr(command, name)]
        assert type(entry.command) is type(command)
        assert [getattr(entry.command, name) for name in fields] == [getattr(command, name) for name in fields]
    assert all(entry.command.id < 0 for entry in entries)


@pytest.mark.parametrize("appeared", [0, 100])
def test_plan_begins_when_its_models_begin_to_train(appeared: int, file: Path) -> None:
    """A script may pretrain other models first, whose modules may have the same paths."""
    state = state_of([])
    if appeared:
        state.model_changes.append(ModelChange(appeared, "Student", replaces=True))
    commands = [TrainOnly(0, ":head"), SetCheckpointing(0, "blocks.0", True)]
    file.write_text(plan_text(state, commands, "train.py"), encoding="utf-8")
    assert [(entry.step, entry.late) for entry in load(file)] == [(appeared, appeared > 0)] * 2
    assert ("after 100 steps" in file.read_text(encoding="utf-8")) is (appeared > 0)


def test_file_explains_its_use_and_answers() -> None:
    text = schedule_text(
        state_of([(30, SetTrainable(1, "fc2", False), "froze fc2: 2 tensors,\n12 parameters", 0, False)]),
        "'my runs/train me.py' --name 'a\nb'",
    )
    assert text.splitlines()[0] == (
        "# What was done to 'train me.py' while it ran. To do the same again: "
        "gradtui --schedule THIS_FILE 'my runs/train me.py' --name 'a b'"
    )
    assert text.endswith(
        '\n[[do]] # froze fc2: 2 tensors, 12 parameters\nstep = 30\ncommand = "freeze"\npath = "fc2"\n'
    )


def test_a_file_that_lacks_the_oldest_says_so() -> None:
    state = state_of([(n, SetTrainable(n, "fc2", False), "froze fc2", 0, False) for n in range(INTERVENTIONS_KEPT + 2)])
    assert "# Not complete: 2 earlier " in schedule_text(state, "train.py")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[[do]\n", "it is not TOML: "),
        (b"\xff\xfe", "it is not a text in UTF-8"),
        (b"do = 3", "do is not a list of tables"),
    ],
)
def test_what_is_no_schedule_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    with pytest.raises(BadEntry) as bad:
        load(file)
    assert str(bad.value).startswith(said)
    assert "\n" not in str(bad.value)
    with pytest.raises(BadEntry, match="No such file"):
        load(tmp_path / "nowhere.toml")
    with pytest.raises(BadEntry, match="Is a directory"):
        load(tmp_path)


def test_acts_of_person_are_written_without_replay() -> None:
    written: dict[str, bytes] = {}

    class Sink:
        def __init__(self, name: str) -> None:
            self.name = name

        def write(self, data: bytes) -> None:
            written[self.name] = data

    class Made:
        def write(self, kind: str, suffix: str, fill: Callable[[Any], object]) -> str:
            fill(Sink(kind + suffix))
            return f"/runs/{kind}{suffix}"

        def write_beside(self, path: str, suffix: str, fill: Callable[[Any], object]) -> str:
            return self.write(Path(path).stem, suffix, fill)

    files = InterventionFiles(Made(), ("my runs/train me.py", "--lr", "0.1"))
    assert files.closing(RunState()) is None
    assert files.closing(state_of([(3, SetTrainable(-1, "fc2", False), "froze fc2", 0, False)])) is None
    assert written == {}
    state = state_of([(3, SetTrainable(1, "fc2", False), "froze fc2", 0, False)])
    said = files.save(state)
    assert "/runs/saved-schedule.toml 'my runs/train me.py' --lr 0.1;" in said
    assert said.endswith("/runs/saved-schedule.py")
    assert written["saved-schedule.toml"].decode() == schedule_text(state, "'my runs/train me.py' --lr 0.1")
    code = written["saved-schedule.py"].decode().splitlines()
    assert code[1:] == ["import gradtui", "", 'gradtui.apply_schedule("/runs/saved-schedule.toml", model, optimizer)']
    assert files.closing(state) is None
    apply(state, CommandApplied(0.0, 9, Undo(2), "unfroze fc2", ()))
    assert "gradtui --schedule /runs/schedule.toml " in (files.closing(state) or "")

    class Full(Made):
        def write(self, kind: str, suffix: str, fill: Callable[[Any], object]) -> str:
            raise OSError(28, "No space left on device")

    said = InterventionFiles(Full(), ("train.py",)).closing(state)
    assert said.endswith("No space left on device")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('command = "freeze"\npath = "re:("', "'re:(' is no regular expression"),
        ('command = "freeze"\npath = "head, re:[z-a]"', "'re:[z-a]' is no regular expression"),
        ('command = "train_only"\nselection = "re:*"', "'re:*' is no regular expression"),
        ('command = "set_group"\noptimizer = 0\ngroup = 0\nlearning_rate = nan', "is a finite number"),
        ('command = "set_group"\noptimizer = 0\ngroup = 0\nweight_decay = -inf', "is a finite number"),
        ('command = "set_group"\noptimizer = 0\ngroup = 0\nlearning_rate = -0.5', "from 0 on, not -0.5"),
        (
            'command = "set_group"\noptimizer = -1\ngroup = 0\nlearning_rate = 0.5',
            "no optimizer -1: they are numbered from 0 on",
        ),
        ('command = "set_group"\noptimizer = 0\ngroup = 0', "neither a learning rate nor a weight decay was named"),
        ('command = "set_group"\noptimizer = 0\ngroup = 0\nlearning_rate = 1e39', "1e+39 would break the run"),
    ],
)
def test_impossible_expression_or_number_is_refused_before_run(entry: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "schedule.toml"
    file.write_text(f"[[do]]\nstep = 3\n{entry}\n")
    with pytest.raises(BadEntry, match=r"^entry 1 \(step 3\): ") as refused:
        load(file)
    assert words in str(refused.value)


def test_comma_within_expression_does_not_divide_it(tmp_path: Path) -> None:
    file = tmp_path / "schedule.toml"
    file.write_text('[[do]]\nstep = 3\ncommand = "freeze"\npath = "re:(a{1,2})"\n')
    assert len(load(file)) == 1


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(BadEntry, match="it is no regular file"):
            load(file)
    (tmp_path / "large").write_bytes(b"#" * ((16 << 20) + 1))
    with pytest.raises(BadEntry, match="larger than 16 MiB"):
        load(tmp_path / "large")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a=" + "[" * 20_000, "its brackets are nested too deeply"),
        ("version." + "a." * 20_000 + "a=1", "a key has too many dots"),
        ("version = " + "1" * 5_000, "it is not TOML: "),
        ("version = " + HEXADECIMAL, "'version' needs more than 64 bits"),
        (f"version = [{HEXADECIMAL}]", "'version' needs more than 64 bits"),
        (f"[[do]]\nstep = {HEXADECIMAL}", "'step' needs more than 64 bits"),
        (f"[[do]]\nstep = 1\nlate = {{a = [[{HEXADECIMAL}]]}}", "'a' needs more than 64 bits"),
        (f"[[do]]\nstep = 1\ncommand = {HEXADECIMAL}", "'command' needs more than 64 bits"),
        (f"[[do]]\nstep = 1\nlearning_rate = 1{'0' * 400}", "'learning_rate' needs more than 64 bits"),
        ("[[do]]\nstep = 9223372036854775808", "'step' needs more than 64 bits"),
        ("version = '" + "1" * 5_000 + "'", "is not known; this program reads version 1"),
    ],
)
def test_implausible_entry_is_refused_in_one_line(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "schedule.toml"
    file.write_text(content)
    with pytest.raises(BadEntry, match=words) as refused:
        load(file)
    assert len(str(refused.value)) < 400


def test_invisible_characters_are_written_as_escapes(tmp_path: Path) -> None:
    name = "a\u202eb\u2028c\u200bd\x7fe\U000e0001f\ufeffgé漢😀"
    state = RunState()
    command = SetTrainable(1, name, False, origin=name)
    apply(state, CommandApplied(0.0, 3, command, f"froze {name}", ()))
    text = schedule_text(state, f"train.py {name}")
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert "é漢😀" in text
    file = tmp_path / "schedule.toml"
    file.write_text(text, encoding="utf-8")
    (entry,) = load(file)
    assert (entry.command, entry.command.origin) == (SetTrainable(-1, name, False), name)
