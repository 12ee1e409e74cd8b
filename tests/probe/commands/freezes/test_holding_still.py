"""What a freeze promises: its tensors hold still, and one that does not is named."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator

import pytest
import torch
from helpers.toggling import freeze, small, step, unfreeze
from helpers.watched import Watched, watched
from torch import Tensor, nn

from gradtui.probe.frozen import Freeze
from gradtui.probe.frozen.bits import BitSample
from gradtui.probe.frozen.freeze_verifier import Verdict
from gradtui.probe.torch_private.host_copy import HostCopy
from gradtui.protocol.events import FreezeVerified, ModelsFound


def steps_after_a_freeze(model: nn.Module, seen: Watched) -> Iterator[int]:
    """Freeze the layer `2` after one step, and give the number of each of the twelve steps that follow as it ends."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer)
    seen.submit(freeze("2"))
    for number in range(12):
        step(model, optimizer)
        yield number


def test_frozen_tensor_that_is_written_to_is_named() -> None:
    model = small()
    with watched() as seen:
        for _ in steps_after_a_freeze(model, seen):
            with torch.no_grad():
                model[2].bias.mul_(0.9)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))
    assert seen.letters()["2.bias"] == "M"
    assert seen.state.log[-1].kind == "moved"


@pytest.mark.parametrize("write", ["data", "set", "copy"])
def test_write_that_leaves_version_counter_alone_is_seen(write: str) -> None:
    """Weight clipping and averaged weights are usually written through `.data`."""
    model = small()
    with watched() as seen:
        for number in steps_after_a_freeze(model, seen):
            if number == 5:
                version = model[2].bias._version
                if write == "data":
                    model[2].bias.data.clamp_(-0.01, 0.01)
                elif write == "set":
                    model[2].bias.data = model[2].bias.data * 0.5
                else:
                    model[2].bias.data[3].copy_(torch.tensor(9.0))
                assert model[2].bias._version == version
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))


def test_a_write_that_is_undone_is_a_write() -> None:
    """Weights swapped for averaged ones and back."""
    model = small()
    with watched() as seen:
        for number in steps_after_a_freeze(model, seen):
            if number == 5:
                with torch.no_grad():
                    kept = model[2].bias.clone()
                    model[2].bias.zero_()
                    model[2].bias.copy_(kept)
    (verified,) = seen.all(FreezeVerified)
    assert verified.moved == ("2.bias",)


def test_tensor_frozen_again_belongs_to_later_freeze() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(18):
            for at, make in ((2, freeze("2")), (4, unfreeze("2.bias")), (6, freeze("2.bias"))):
                if number == at:
                    seen.submit(make)
            step(model, optimizer)
    told = [(event.command, event.step, event.parameters, event.moved) for event in seen.all(FreezeVerified)]
    assert told == [(1, 12, 1, ()), (3, 16, 1, ())]


def test_reading_and_moving_around_is_no_write() -> None:
    model = small()
    with watched() as seen:
        for _ in steps_after_a_freeze(model, seen):
            copy.deepcopy(model)
            model[2].weight.data = model[2].weight.data.clone()
            model.state_dict()
            model.eval()
            model.train()
    (verified,) = seen.all(FreezeVerified)
    assert (verified.parameters, verified.moved) == (2, ())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(7),
        torch.zeros(0, 3),
        torch.tensor(1.5),
        torch.zeros(3, 5, dtype=torch.bfloat16),
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(2, 3, dtype=torch.float64).t(),
        torch.zeros(10, 6)[::2, 1::2],
        torch.zeros(9)[1:].view(2, 4),
        torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last),
    ],
    ids=["odd", "empty", "scalar", "bf16", "complex", "transposed", "strided", "offset", "channels last"],
)
def test_any_layout_is_held_to_the_bit(tensor: Tensor) -> None:
    parameter = nn.Parameter(
        tensor.clone(memory_format=torch.preserve_format) if tensor.is_contiguous() else tensor, False
    )
    watching = Freeze(1, 0, [("p", parameter)])
    assert watching.held[0] in watching._at_freeze
    assert watching.verdict() == Verdict(1, ())
    if parameter.numel():
        watching = Freeze(1, 0, [("p", parameter)])
        last = tuple(size - 1 for size in parameter.shape)
        # One bit of one element: a negative zero.
        parameter.data[last] = -0.0 if not parameter.is_complex() else complex(0.0, -0.0)
        assert watching.verdict() == Verdict(1, ("p",))


def test_only_present_frozen_tensors_are_said_to_hold() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("0"))
        seen.submit(freeze("2"))
        step(model, optimizer)
        model[0].bias.requires_grad_(True)  # The script takes one back, in vain,
        seen.submit(unfreeze("2.bias"))  # the person another,
        model[2].weight = nn.Parameter(torch.ones(8, 8), requires_grad=False)  # and one is gone.
        optimizer.param_groups[0]["params"] = [p for p in optimizer.param_groups[0]["params"] if p.shape != (8, 8)]
        for _ in range(12):
            step(model, optimizer)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.command, verified.parameters, verified.moved) == (1, 2, ())


def test_freeze_is_verified_though_model_has_changed_since() -> None:
    model = small()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        step(model, optimizer)
        model.insert(0, nn.Linear(4, 4))
        for _ in range(12):
            step(model, optimizer)
            with torch.no_grad():
                model[3].bias.add_(1)
    assert len(seen.all(ModelsFound)) == 2
    (verified,) = seen.all(FreezeVerified)
    # Named as it was called when it was frozen.
    assert (verified.parameters, verified.moved) == (2, ("2.bias",))


def test_outstanding_device_verdict_is_asked_again() -> None:
    class Done:
        asked = 0

        def query(self) -> bool:
            self.asked += 1
            return self.asked > 2

    model, done = small(), Done()
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        seen.submit(freeze("2"))
        step(model, optimizer)
        (watching,) = seen.probe.dispatcher.freezes.freezes
        copy = HostCopy(torch.zeros(0, dtype=torch.bool))
        copy._done = done  # type: ignore[assignment]
        watching._now = BitSample(())
        watching._now._under_way.append(((torch.device("cpu"), torch.bool), [], copy))
        for _ in range(14):
            step(model, optimizer)
    (verified,) = seen.all(FreezeVerified)
    assert (verified.step, verified.steps, verified.parameters) == (13, 12, 2)


def test_watching_a_freeze_keeps_nothing_alive() -> None:
    parameter = nn.Parameter(torch.ones(3), requires_grad=False)
    watching = Freeze(1, 0, [("p", parameter)])
    left = weakref.ref(parameter)
    del parameter
    assert left() is None
    assert watching.verdict() == Verdict(0, ())


def test_frozen_part_of_larger_tensor_holds_still() -> None:
    flat = torch.ones(40)
    frozen, trained = (nn.Parameter(part) for part in flat.split(20))
    frozen.requires_grad_(False)
    watching = Freeze(1, 0, [("p", frozen)])
    trained.detach().add_(1)
    assert frozen._version == 1
    assert watching.verdict() == Verdict(1, ())

    watching = Freeze(1, 0, [("p", frozen)])
    frozen.detach().add_(1)
    assert watching.verdict() == Verdict(1, ("p",))
