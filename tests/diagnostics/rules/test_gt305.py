"""GT305: holders whose tensors grow in number, and holders of the graph of a past forward."""

from __future__ import annotations

from scripted_run import match, matches, run

from gradtui.protocol import events as ev
from gradtui.run.reducer import apply
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState

MIB = 1 << 20


def kept(
    holder: str = "features",
    *,
    tensors: int = 20,
    with_graph: int = 20,
    since: int = 2,
    epoch: int | None = None,
) -> RunState:
    state = run()
    state.epoch_steps = epoch
    more = 1.0 if tensors > 1 else 0.0
    found = ev.KeptTensors(holder, False, tensors, 2 * MIB, with_graph, more, 65_536.0, since)
    apply(state, ev.KeptTensorsFound(1.0, 20, (found,)))
    return state


def holding(bytes_of_holder: int, *, of_module: bool = True, since: int = 2, forwards: int = 1) -> RunState:
    state = run(steps=40)
    apply(state, ev.GraphsAlive(1.0, 15, forwards, False, since, 2 * MIB))
    apply(state, ev.GraphHolderFound(1.0, 15, "2.alphas", of_module, forwards, bytes_of_holder, since))
    return state


def test_tensors_with_a_graph() -> None:
    found = match("GT305", kept())
    assert found.message == (
        "features holds 20 tensors (2.0 MiB), 1.0 more with each step since step 2, 20 of them with a graph"
    )
    assert found.level is None


def test_detached_tensors_are_a_note_until_an_epoch_has_ended() -> None:
    assert match("GT305", kept(with_graph=0)).level is Level.NOTE
    assert match("GT305", kept(with_graph=0, epoch=100)).level is Level.NOTE
    assert match("GT305", kept(epoch=100)).level is None
    assert match("GT305", kept(with_graph=0, epoch=10)).level is None


def test_one_tensor_that_grows() -> None:
    found = match("GT305", kept("bank", tensors=1, with_graph=0))
    assert found.message == "bank holds 1 tensor (2.0 MiB), 64.0 KiB more with each step since step 2"


def test_gradients_with_graphs() -> None:
    found = match("GT305", kept(""))
    assert found.message.startswith("gradients with graphs keep 20 tensors (2.0 MiB)")
    assert found.remedy is not None


def test_the_graph_of_one_forward() -> None:
    found = match("GT305", holding(2 * MIB))
    assert found.message == "2.alphas holds the graph of a forward since step 2, which no backward reaches: 2.0 MiB"
    assert found.level is None
    assert match("GT305", holding(2 * MIB, of_module=False)).level is Level.NOTE


def test_a_holder_of_few_of_the_bytes_and_a_young_graph() -> None:
    assert matches("GT305", holding(MIB)) == []
    assert matches("GT305", holding(2 * MIB, since=30)) == []


def test_the_holder_of_the_graphs_of_many_steps() -> None:
    state = holding(2 * MIB, forwards=13)
    assert match("GT301", state).message.endswith("and keep 2.0 MiB in 2.alphas")
