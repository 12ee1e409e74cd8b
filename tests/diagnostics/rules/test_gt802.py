"""GT802: what is said of groups that do not fit, by what is known of their members."""

from __future__ import annotations

import pytest

from gradtui.protocol.events import GroupsRefused
from gradtui.run.diagnostics.selection import rule_named
from gradtui.run.reducer import apply
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import modules_of

BLOCK = tuple(f"blocks.7.{part}.{name}" for part in ("norm", "attn", "mlp") for name in ("weight", "bias"))


def message(
    *, group: int = 1, own: int, saved: int, known: bool = True, only_own: tuple[str, ...] = (),
    only_saved: tuple[str, ...] = (), moved: tuple[str, ...] = (),
) -> str:  # fmt: skip
    state = RunState()
    apply(
        state,
        GroupsRefused(
            1.0, 0, 0, "AdamW", group, own, saved, known, only_own, len(only_own), only_saved, len(only_saved), moved,
            "/data/run/last.pt", 512, None,
        ),
    )  # fmt: skip
    (found,) = rule_named("GT802").check(state)
    return found.message


def test_an_unfrozen_block() -> None:
    assert message(own=7, saved=1, only_own=BLOCK) == (
        "load_state_dict() of AdamW failed: group 1 has 7 parameters, run/last.pt has 1: the optimizer has blocks.7 (6 "
        "tensors), which it had not when it was saved after step 512"
    )


def test_another_block_in_its_place() -> None:
    text = message(own=1, saved=6, only_own=("head.bias",), only_saved=BLOCK)
    assert "has head.bias, which it had not when it was saved after step 512; the optimizer lacks blocks.7 (6" in text


def test_other_groups() -> None:
    assert message(group=-1, own=1, saved=2, moved=BLOCK[:2]).endswith(
        "it has 1 group, run/last.pt has 2: in another group than when it was saved: "
        "blocks.7.norm.weight and blocks.7.norm.bias"
    )


def test_a_state_without_names() -> None:
    assert message(own=6, saved=1, known=False, only_own=BLOCK).endswith(
        "; its own are blocks.7 (6 tensors), those of the state have no names"
    )


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (("a.b.weight",), 1, "a.b.weight"),
        (BLOCK[:4], 4, "blocks.7 (4 tensors)"),
        (("blocks.0.fc.weight", "blocks.1.fc.weight", "head.weight"), 3, "blocks.0, blocks.1 and others (3 tensors)"),
        (("a", "b", "c"), 70, "a, b and others (70 tensors)"),
        (("a.x", "a.y"), 60, "a (60 tensors)"),
    ],
)
def test_parameters_by_their_modules(names: tuple[str, ...], count: int, words: str) -> None:
    assert modules_of(names, count) == words
