"""GT113: two Parameters over one storage. `test_gt113_untied.py` has copies."""

from __future__ import annotations

from dataclasses import replace

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.state.run_state import RunState


def shared(model: ev.ModelsFound) -> ev.ModelsFound:
    """Let both weights be over one storage."""
    of = {"a.weight": ("b.weight",), "b.weight": ("a.weight",)}
    return replace(
        model, parameters=tuple(replace(each, same_storage=of.get(each.path, ())) for each in model.parameters)
    )


def state_of(owned: tuple[int, ...], trainable: str = "1111") -> RunState:
    plain = run().tree
    model = ev.ModelsFound(0.5, 0, plain.models, plain.modules, plain.parameters)
    return run(trainable=trainable, owned=owned, model=shared(model))


def test_both_are_in_optimizers() -> None:
    found = match("GT113", state_of((0, 1, 2, 3)))
    assert found.paths == ("a.weight", "b.weight")
    assert found.message.endswith("each step is applied twice")


def test_one_of_them_is_in_none_or_frozen() -> None:
    assert matches("GT113", state_of((0, 1, 3))) == []
    assert matches("GT113", state_of((0, 1, 2, 3), "0000")) == []
