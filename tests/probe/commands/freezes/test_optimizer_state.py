"""What becomes of the optimizer's state of what is frozen: kept, offloaded until the unfreeze, or dropped."""

from __future__ import annotations

import copy
import errno
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers.elsewhere import move_moments
from helpers.toggling import Make, bits, freeze, small, step, unfreeze
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.probe.commands.freezes import optimizer_state
from gradtui.probe.commands.freezes.optimizer_state import OptimizerStates
from gradtui.probe.model import AddedParameters, optimizer_membership
from gradtui.protocol.commands import SetTrainable, Undo
from gradtui.protocol.events import FreezeStateChanged
from gradtui.run.text.units import size_text

ADAM: Make = lambda p: torch.optim.Adam(p, lr=0.01)  # noqa: E731


def frozen(path: str, state: str) -> Callable[[int], SetTrainable]:
    return lambda id_: SetTrainable(id_, path, False, state=state)


def train(
    model: nn.Module, make: Make, at: dict[int, object], steps: int = 10
) -> tuple[Watched, torch.optim.Optimizer]:
    with watched() as seen:
        optimizer = make(model.parameters())
        for _ in seen.steps(steps, at):
            step(model, optimizer)
    return seen, optimizer


def entries(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, object]:
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in optimizer.state[parameter].items()
    }


def test_dropping_frees_state_and_says_so() -> None:
    model = small()
    seen, optimizer = train(model, ADAM, {3: frozen("2", "drop")})
    # Two moments of each tensor and a counter.
    size = sum(2 * p.nbytes + 4 for p in model[2].parameters())
    assert seen.answers() == [f"froze 2: 2 tensors, 72 parameters; dropped Adam's state, which frees {size_text(size)}"]
    assert all(p not in optimizer.state for p in model[2].parameters())
    assert all(p in optimizer.state for p in model[0].parameters())


def test_dropped_state_begins_anew_as_in_source() -> None:
    model, scripted = small(), small()
    train(model, ADAM, {3: frozen("2", "drop"), 6: unfreeze("2")})
    optimizer = ADAM(scripted.parameters())
    for number in range(10):
        if number in (3, 6):
            for parameter in scripted[2].parameters():
                parameter.requires_grad_(number == 6)
                parameter.grad = None
                optimizer.state.pop(parameter, None)
        step(scripted, optimizer)
    assert bits(model) == bits(scripted)


def test_undo_returns_dropped_state_to_bit() -> None:
    kept, dropped = small(), small()
    train(kept, ADAM, {3: freeze("2"), 6: unfreeze("2")})
    seen, _ = train(dropped, ADAM, {3: frozen("2", "drop"), 6: Undo})
    assert seen.answers()[1] == "unfroze 2: 2 tensors, 72 parameters; the optimizer's state is what it was"
    assert bits(dropped) == bits(kept)


def test_state_too_large_for_undo_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(optimizer_state.torch, "save", full)
    model = small()
    seen, optimizer = train(model, ADAM, {3: frozen("2", "drop"), 6: Undo})
    assert seen.answers()[0].startswith("froze 2")
    assert "No space left on device" in seen.answers()[1]
    assert model[2].weight not in optimizer.state
    # Refused, so nothing of it was taken back.
    assert not model[2].weight.requires_grad


def test_an_undo_keeps_nothing_of_the_script_alive() -> None:
    model = small()
    with watched() as seen:
        optimizer = ADAM(model.parameters())
        step(model, optimizer)
        seen.submit(frozen("2", "drop"))
        step(model, optimizer)
        left = [weakref.ref(model[2].weight), weakref.ref(optimizer)]
        del model, optimizer
        gc.collect()
        assert [reference() for reference in left] == [None, None]


def test_offloading_on_host_has_nothing_to_move() -> None:
    model, kept = small(), small()
    seen, _ = train(model, ADAM, {3: frozen("2", "offload"), 6: unfreeze("2")})
    train(kept, ADAM, {3: freeze("2"), 6: unfreeze("2")})
    assert seen.answers()[0].endswith("of state, which is in host memory anyway")
    assert bits(model) == bits(kept)


def on_a_device(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose optimizer's moments are on what seems a device."""
    model = small()
    optimizer = ADAM(model.parameters())
    step(model, optimizer)
    move_moments(optimizer, model.parameters(), monkeypatch)
    return model, optimizer


def test_offloaded_state_stays_and_returns_to_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = on_a_device(monkeypatch)
    weight = model[2].weight
    before = copy.deepcopy({name: value.tolist() for name, value in optimizer.state[weight].items()})
    states = OptimizerStates(AddedParameters(list))
    words, _ = states.apply("offload", [weight], optimizer_membership.owners([optimizer]))
    size = 2 * weight.nbytes
    assert words == f"; Adam's state waits in host memory, which frees {size_text(size)} of cuda:0"
    assert states.is_offloaded(weight)
    assert not states.is_offloaded(model[0].weight)
    # A checkpoint that is saved meanwhile has it, on the host.
    saved = optimizer.state_dict()["state"][2]
    assert {name: value.tolist() for name, value in saved.items()} == before
    assert {value.device.type for value in saved.values()} == {"cpu"}
    assert states.bring_back([weight, model[0].weight]) == [weight]
    assert {name: value.tolist() for name, value in optimizer.state[weight].items()} == before
    assert optimizer.state[weight]["exp_avg"].device.type == "cuda"
    # The counter never was on the device.
    assert optimizer.state[weight]["step"].device.type == "cpu"
    assert states.bring_back([weight]) == []


def test_state_without_room_on_device_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = on_a_device(monkeypatch)
    weight = model[2].weight
    states = OptimizerStates(AddedParameters(list))
    states.apply("offload", [weight], optimizer_membership.owners([optimizer]))
    moved = Tensor.to
    calls = []

    def full(tensor: Tensor, device: object) -> Tensor:
        calls.append(device)
        if len(calls) == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return moved(tensor, device)

    monkeypatch.setattr(Tensor, "to", full)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        states.bring_back([weight])
    assert {value.device.type for value in optimizer.state[weight].values()} == {"cpu"}
    assert states.is_offloaded(weight)
    states.bring_all_back()
    assert optimizer.state[weight]["exp_avg"].device.type == "cuda"


def test_checkpoint_that_is_loaded_meanwhile_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = on_a_device(monkeypatch)
    weight = model[2].weight
    states = OptimizerStates(AddedParameters(list))
    states.apply("offload", [weight], optimizer_membership.owners([optimizer]))
    optimizer.state[weight] = {"step": torch.tensor(7.0)}
    assert states.bring_back([weight]) == [weight]
    assert optimizer.state[weight] == {"step": torch.tensor(7.0)}


def test_state_of_frozen_is_dropped_and_undone() -> None:
    model, kept = small(), small()
    kept.load_state_dict(model.state_dict())
    seen, optimizer = train(model, ADAM, {3: freeze("2"), 5: frozen("2", "drop")})
    size = sum(2 * p.nbytes + 4 for p in model[2].parameters())
    said = seen.answers()
    assert said[1].endswith(f", which frees {size_text(size)}")
    assert all(p not in optimizer.state for p in model[2].parameters())
    assert not any(p.requires_grad for p in model[2].parameters())
    _, other = train(kept, ADAM, {3: freeze("2"), 5: frozen("2", "drop"), 7: Undo, 8: Undo})
    # After both undos it trains on, with the state that it had.
    assert all(other.state[p]["step"] == 5 for p in kept[2].parameters())


def test_freeze_of_part_drops_state_of_all() -> None:
    model = small()
    seen, optimizer = train(model, ADAM, {3: freeze("2.bias"), 5: frozen("2", "drop"), 7: Undo})
    weight, bias = (size_text(2 * p.nbytes + 4) for p in (model[2].weight, model[2].bias))
    assert all(size in seen.answers()[1] for size in (weight, bias))
    assert (model[2].weight.requires_grad, model[2].bias.requires_grad) == (True, False)
    assert (optimizer.state[model[2].weight]["step"], optimizer.state[model[2].bias]["step"]) == (8, 3)


def test_so_is_state_of_what_script_has_frozen() -> None:
    model = small()
    with watched() as seen:
        optimizer = ADAM(model.parameters())
        for number in range(8):
            if number == 1:
                model[2].requires_grad_(False)
                model.zero_grad()
            if number == 5:
                seen.submit(frozen("2", "drop"))
            step(model, optimizer)
    assert "dropped Adam's state" in seen.answers()[0]
    assert all(p not in optimizer.state for p in model[2].parameters())


@pytest.mark.parametrize("how", ["keep", "offload", "drop"])
def test_undo_leaves_freeze_of_script_and_returns_state(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    found: dict[int, list[bool]] = {}
    with watched() as seen:
        optimizer = ADAM(model.parameters())
        for number in range(12):
            if number == 2:
                model[2].requires_grad_(False)
                model.zero_grad()
                move_moments(optimizer, model[2].parameters(), monkeypatch)
            found[number] = [
                parameter in optimizer.state and optimizer.state[parameter]["exp_avg"].device.type == "cuda"
                for parameter in model[2].parameters()
            ]
            if number == 6:
                seen.submit(frozen("2", how))
            if number == 9:
                seen.submit(Undo)
            step(model, optimizer)
    assert seen.answers()[1].startswith("2 is left to the script")
    assert found[6] == found[11] == [True, True]
    assert found[8] == [how == "keep"] * 2
    # The script may unfreeze it now.
    model[2].requires_grad_(True)
    assert seen.all(FreezeStateChanged)[-1].frozen == ()


@pytest.mark.parametrize(("how", "first"), [("drop", "drop"), ("offload", "keep")])
def test_immovable_state_leaves_nothing_to_do(how: str, first: str) -> None:
    # On the CPU the state is in host memory anyway.
    seen, _ = train(small(), ADAM, {3: frozen("2", first), 5: frozen("2", how)})
    assert seen.answers()[1] == "2 is already frozen"


def test_refused_freeze_keeps_earlier_state() -> None:
    model = small()
    with watched() as seen:
        optimizer = ADAM(model.parameters())
        step(model, optimizer)
        seen.submit(freeze("2"))
        step(model, optimizer)
        before = entries(optimizer, model[2].weight)
        seen.submit(frozen("", "drop"))
        step(model, optimizer)
        after = entries(optimizer, model[2].weight)
    assert "nothing would train" in seen.answers()[1]
    assert before.keys() == after.keys() != set()
    assert all(torch.equal(before[name], after[name]) for name in before)
