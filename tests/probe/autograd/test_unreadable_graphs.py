"""Before torch 2.10 what a graph keeps cannot be read where hooks were set: it is unknown, and not zero."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from helpers.watched import watched
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from gradtui.probe.sampling import sampled_step
from gradtui.probe.torch_private import unshown_tensors
from gradtui.probe.torch_private.private_names import saved_data, saved_tensors
from gradtui.protocol.events import SavedBytesMeasured


def test_unreadable_is_not_reported_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_step, "are_readable", lambda: False)
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert not seen.all(SavedBytesMeasured)
    assert set(seen.letters().values()) == {"T"}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[1], None


def kept(output: Tensor) -> list[list[int | None]]:
    """The storage of each tensor that each operation of a chain keeps."""
    found, node = [], output.grad_fn
    while node is not None:
        data = [saved_data(each) for each in saved_tensors(node)]
        found.append([each.untyped_storage().data_ptr() if each is not None else None for each in data])
        node = next((before for before, _ in node.next_functions if before is not None), None)
    return found


def without_shown_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gradtui read graphs as it does before torch 2.10, from now on."""
    monkeypatch.setattr(unshown_tensors, "ARE_SHOWN", False)
    unshown_tensors.watch(lambda owner, name, wrap: monkeypatch.setattr(owner, name, wrap(getattr(owner, name))))


def test_unpacked_tensors_are_those_torch_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    without_shown_tensors(monkeypatch)
    x, factor = torch.ones(3, requires_grad=True), torch.tensor(2.0)
    inner = Doubled.apply(x, factor)
    outer = inner.exp()
    output = torch.cat([outer, outer])[torch.tensor([0, 1])].square().sum()
    unpacked = kept(output)
    pointers = [each.untyped_storage().data_ptr() for each in (x, factor, outer)]
    assert unpacked[-2] == pointers[:2]
    assert [pointers[2]] in unpacked
    if hasattr(torch._C._autograd.SavedTensor, "unpack_hook"):
        monkeypatch.undo()
        assert unpacked == kept(output)
    output.backward()
    assert x.grad is not None


def test_only_what_is_kept_under_hooks_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what a checkpointed forward has saved would run it again."""
    monkeypatch.setattr(unshown_tensors, "ARE_SHOWN", False)
    before = torch._C._autograd._push_saved_tensors_default_hooks, torch._C._autograd._pop_saved_tensors_default_hooks
    first, region, last = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Linear(3, 2)
    model, forwards = nn.ModuleList([first, region, last]), 0

    def forward(x: Tensor) -> Tensor:
        nonlocal forwards
        forwards += 1
        output: Tensor = region(x)
        return output

    with watched(budget=1e6) as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in range(4):
            x = first(torch.ones(5, 2))
            last(checkpoint(forward, x, use_reentrant=False) if number > 1 else forward(x)).sum().backward()
            optimizer.step()
    found = {event.step: event for event in seen.all(SavedBytesMeasured)}
    paths = [module.path for module in seen.state.tree.modules]
    kept_by = {step: {path: size for path, size in zip(paths, found[step].by_module) if size} for step in found}
    batch, wide, middle = 5 * 2 * 4, 5 * 4 * 4, 5 * 3 * 4
    # Each layer keeps its input, and Tanh its result, which the next layer takes. A region keeps its input.
    assert kept_by[2] == {"0": batch, "1.0": middle, "1.1": wide, "2": middle}
    assert kept_by[4] == {"0": batch, "1": middle, "2": middle}
    assert dict(zip(paths, found[4].recomputed))["1.0"] is None
    # Two steps call it twice.
    assert forwards == 6
    after = torch._C._autograd._push_saved_tensors_default_hooks, torch._C._autograd._pop_saved_tensors_default_hooks
    assert after == before


class Halves:
    """Hooks that count what they unpack."""

    def __init__(self) -> None:
        self.unpacked = 0

    def pack(self, tensor: Tensor) -> Tensor:
        return tensor / 2

    def unpack(self, tensor: Tensor) -> Tensor:
        self.unpacked += 1
        return tensor * 2


def test_hooks_within_hooks_and_from_before_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, own = torch.ones(3, requires_grad=True), Halves()
    hooks = lambda: saved_tensors_hooks(own.pack, own.unpack)  # noqa: E731
    with hooks():
        without_shown_tensors(monkeypatch)
        hooked = x.exp()
    read = hooked.exp()
    with hooks():
        with hooks():
            hooked = read.exp()
        hooked = hooked.exp()
    output = hooked.exp()
    # The last one accumulates the gradient of `x`, and keeps nothing.
    assert kept(output) == [[output.data_ptr()], [None], [None], [read.data_ptr()], [None], []]
    assert own.unpacked == 0
    output.sum().backward()
    assert own.unpacked == 3


def test_oldest_places_are_forgotten_and_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unshown_tensors, "_MOST", 8)
    without_shown_tensors(monkeypatch)
    x, own = torch.ones(3, requires_grad=True), Halves()
    early = x.exp()
    output, read = early, []
    for _ in range(8):
        with saved_tensors_hooks(own.pack, own.unpack):
            output = output.exp()
        output = output.exp()
        read.append([output.data_ptr()])
    found = kept(output)
    assert found[:4] == [read[-1], [None], read[-2], [None]]
    assert found[-2] == [None]
    assert own.unpacked == 0


def test_numbers_of_other_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread numbers its operations from 0: the forecast's lie before the watch of the training thread."""
    torch.ones(1, requires_grad=True).exp()
    without_shown_tensors(monkeypatch)
    found: list[list[Tensor | None]] = []

    def record() -> None:
        node = torch.ones(3, requires_grad=True).exp().grad_fn
        found.extend([saved_data(each) for each in saved_tensors(node, of_this_thread=own)] for own in (False, True))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert found[0] == [None]
    assert [each.tolist() for each in found[1] if each is not None] == [torch.ones(3).exp().tolist()]


def test_nothing_is_read_where_numbers_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may have the identity of one that has ended. Operations of both have the same numbers."""
    own, now = Halves(), 7
    monkeypatch.setattr(unshown_tensors, "_next_number", lambda: now)
    without_shown_tensors(monkeypatch)
    with saved_tensors_hooks(own.pack, own.unpack):
        assert unshown_tensors.are_readable()
    now = 3
    with saved_tensors_hooks(own.pack, own.unpack):
        assert not unshown_tensors.are_readable()
