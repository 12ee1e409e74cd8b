"""Commands as words and back, and what is said of words that are no command."""

from __future__ import annotations

import math
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.dataclass import dataclass
from gradtui.protocol import codec, commands
from gradtui.protocol.codec import BadEntry, from_words, to_words, words_of
from gradtui.protocol.commands import Command, Intervention, RunSteps, SetTrainable, TrainOnly, Undo
from gradtui.protocol.schedule import Scheduled, read, to_table
from gradtui.run.state.changes.objections import in_full

KINDS = [
    kind
    for kind in vars(commands).values()
    if isinstance(kind, type) and issubclass(kind, Command) and kind not in (Command, Intervention)
]


def field_values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field; of a number only those that a file may have."""
    values: st.SearchStrategy[Any] = st.from_type(hint)
    return values.filter(lambda value: not isinstance(value, float) or math.isfinite(value))


VALUES = st.sampled_from(KINDS).flatmap(
    lambda kind: st.builds(
        kind, **{name: field_values(hint) for name, hint in get_type_hints(kind).items() if name != "id"}, id=st.just(7)
    )
)


@given(VALUES)
def test_every_command_comes_back_as_it_was(command: Command) -> None:
    words = to_words(command)
    assert next(iter(words)) == "command"
    assert "id" not in words
    assert from_words(words, 7) == command


def test_the_words_are_short() -> None:
    assert to_words(SetTrainable(3, "fc2", False)) == {"command": "freeze", "path": "fc2"}
    assert to_words(SetTrainable(3, "fc2", True)) == {"command": "unfreeze", "path": "fc2"}
    assert to_words(TrainOnly(3, ":head")) == {"command": "train_only", "selection": ":head"}
    assert to_words(Undo(3)) == {"command": "undo"}
    assert to_words(RunSteps(3)) == {"command": "run_steps"}


@dataclass(frozen=True)
class SetRates(Command):
    """A command with every kind of field."""

    optimizer: int
    rate: float | None = None
    paths: tuple[str, ...] = ()
    on: bool = True


@pytest.fixture
def with_rates(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(commands, "SetRates", SetRates, raising=False)
    codec._kinds.cache_clear()
    yield
    codec._kinds.cache_clear()


@pytest.mark.usefixtures("with_rates")
def test_fields_of_every_kind() -> None:
    for command in (SetRates(1, 0), SetRates(1, 2, 0.5, ("a", "b"), False), SetRates(1, 2, 3)):
        assert from_words(to_words(command), 1) == command
    assert from_words({"command": "set_rates", "optimizer": 0, "paths": ["a"]}, 1) == SetRates(1, 0, None, ("a",))
    for field, value, said in (
        ("optimizer", True, "optimizer of set_rates is a whole number, not True"),
        ("rate", "1", "rate of set_rates is a finite number, not '1'"),
        ("paths", ["a", 1], "paths of set_rates is a list, each a text in quotes, not ['a', 1]"),
        ("on", 1, "on of set_rates is true or false, not 1"),
    ):
        with pytest.raises(BadEntry) as bad:
            from_words({"command": "set_rates", "optimizer": 0, field: value}, 1)
        assert str(bad.value) == said


FREEZE = {"step": 3, "command": "freeze", "path": "fc2"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"do": [FREEZE, {**FREEZE, "command": "freze"}]},
            "entry 2 (step 3): there is no command 'freze'; did you mean freeze?",
        ),
        # Words of typed commands.
        (
            {"do": [{"step": 3, "command": "checkpoint", "path": "fc2"}]},
            "entry 1 (step 3): there is no command 'checkpoint'; did you mean set_checkpointing with on = true?",
        ),
        (
            {"do": [{"step": 3, "command": "set-lr", "learning_rate": 0.1}]},
            "entry 1 (step 3): there is no command 'set-lr'; did you mean set_group?",
        ),
        (
            {"do": [{"step": 3, "command": "train-only", "selection": "fc2"}]},
            "entry 1 (step 3): there is no command 'train-only'; did you mean train_only?",
        ),
        ({"do": [{**FREEZE, "pat": 1}]}, "entry 1 (step 3): freeze has no field 'pat'; did you mean path?"),
        ({"do": [{**FREEZE, "id": 1}]}, "entry 1 (step 3): freeze has no field 'id'; there "),
        ({"do": [{**FREEZE, "trainable": True}]}, "entry 1 (step 3): freeze has no field 'trainable'"),
        ({"do": [{**FREEZE, "path": 2}]}, "entry 1 (step 3): path of freeze is a text in quotes, not 2"),
        ({"do": [{"step": 3, "command": "freeze"}]}, "entry 1 (step 3): freeze needs path"),
        ({"do": [{"step": 3, "path": "fc2"}]}, "entry 1 (step 3): command is missing; it is one of freeze, unfreeze, "),
        ({"do": [{"command": "undo"}]}, "entry 1: step is missing"),
        ({"do": [{**FREEZE, "step": -1}]}, "entry 1: step is a whole number from 0 on, not -1"),
        ({"do": [{**FREEZE, "step": 1.5}]}, "entry 1: step is a whole number from 0 on, not 1.5"),
        ({"do": [{**FREEZE, "step": True}]}, "entry 1: step is a whole number from 0 on, not True"),
        ({"do": [{**FREEZE, "skipped": "1"}]}, "entry 1 (step 3): skipped is a whole number from 0 on, not '1'"),
        ({"do": [{**FREEZE, "late": 1}]}, "entry 1 (step 3): late is true or false, not 1"),
        ({"do": [{"step": 1, "command": "pause"}]}, "entry 1 (step 1): 'pause' is for a person at the screen"),
        (
            {"do": [{"step": 1, "command": "pause_at_bad_step"}]},
            "entry 1 (step 1): 'pause_at_bad_step' is for a person at the screen",
        ),
        ({"do": [3]}, "entry 1: it is not a table; write [[do]] above each entry"),
        ({"do": FREEZE}, "do is not a list of tables; write [[do]] above each entry"),
        ({"entries": []}, "there is no 'entries' in a schedule; it has version and [[do]] tables"),
        ({"version": 2}, "version 2 is not known; this program reads version 1"),
    ],
)
def test_mistake_is_one_line_that_names_its_entry(document: dict[str, Any], said: str) -> None:
    with pytest.raises(BadEntry) as bad:
        read(document)
    assert str(bad.value).startswith(said)
    assert "\n" not in str(bad.value)


def test_tables_are_entries() -> None:
    assert read({}) == ()
    entry = Scheduled(3, SetTrainable(-1, "fc2", False), 2, True, "entry 1 (step 3)")
    assert read({"version": 1, "do": [{**FREEZE, "skipped": 2, "late": True}]}) == (entry,)
    assert to_table(entry) == {"step": 3, "skipped": 2, "late": True, "command": "freeze", "path": "fc2"}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["freeze", "encoder"], {"command": "freeze", "path": "encoder"}),
        (["freeze", "0", "state=drop"], {"command": "freeze", "path": "0", "state": "drop"}),
        (
            ["freeze", "embed.weight", "--rows", "0:5"],
            {"command": "freeze_rows", "path": "embed.weight", "rows": "0:5"},
        ),
        (["unfreeze-rows", "b", "-4:"], {"command": "unfreeze_rows", "path": "b", "rows": "-4:"}),
        (["train-only", ":head"], {"command": "train_only", "selection": ":head"}),
        (["checkpoint", "blocks.1"], {"command": "set_checkpointing", "on": True, "path": "blocks.1"}),
        (["set-lr", "0.002"], {"command": "set_group", "learning_rate": 0.002}),
        (["set-lr", "head", "2e-3"], {"command": "set_learning_rate", "path": "head", "learning_rate": 0.002}),
        (["set-lr", "1e-3", "group=1"], {"command": "set_group", "group": 1, "learning_rate": 0.001}),
        (["set-mode", "bn", "false"], {"command": "set_mode", "path": "bn", "training": False}),
        (["step", "5"], {"command": "run_steps", "count": 5}),
        (["watch", "a,b"], {"command": "watch", "parameters": ["a", "b"]}),
        (["pause"], {"command": "pause"}),
        (["stop"], {"command": "stop_training"}),
    ],
)
def test_what_a_person_types(typed: list[str], words: dict[str, object]) -> None:
    assert words_of(typed) == words
    words = in_full(words, None)
    assert to_words(from_words(words, 1))["command"] == words["command"]


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ([], "which command?"),
        (["freez", "x"], "did you mean freeze"),
        (["step", "5", "6"], "step does not take '6'; it takes count"),
        (["undo", "x"], "it takes nothing more"),
        (["pause", "--rows", "3"], "--rows is for freeze and unfreeze, once: freeze embed.weight --rows 0:32000"),
        (["freeze", "x", "--rows"], "--rows needs rows: freeze embed.weight --rows 0:32000"),
    ],
)
def test_what_a_person_mistypes(typed: list[str], reason: str) -> None:
    with pytest.raises(BadEntry) as refused:
        words_of(typed)
    assert reason in str(refused.value)
