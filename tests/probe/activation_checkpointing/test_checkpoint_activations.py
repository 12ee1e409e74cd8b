"""Checkpointed regions: what they keep, what backward computes again in which module, and that none of it is disturbed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.watched import Watched, watched
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from gradtui.probe.torch_private.unshown_tensors import ARE_SHOWN
from gradtui.protocol.events import SavedBytesMeasured
from gradtui.protocol.vocabulary import Phase

ROWS, WIDTH, HIDDEN, BLOCKS = 8, 16, 48, 3
BATCH = ROWS * WIDTH * 4
needs_packed = pytest.mark.skipif(not ARE_SHOWN, reason="before torch 2.10 it is unknown what hooks have packed")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, HIDDEN)
        self.act = nn.Tanh()
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.fc1(x))))


class Deep(nn.Module):
    """Blocks that are checkpointed in one of two ways, or not at all."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def train(reentrant: bool | None, steps: int = 2) -> tuple[Watched, nn.Module]:
    torch.manual_seed(0)
    model = Deep(reentrant)
    with watched() as seen:
        run(model, steps)
    return seen, model


def run(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(ROWS, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def by_path(seen: Watched, rows: tuple[Any, ...]) -> dict[str, Any]:
    """What is not zero, by the module's path."""
    return {module.path: row for module, row in zip(seen.state.tree.modules, rows, strict=True) if row != 0}


def saved(seen: Watched) -> SavedBytesMeasured:
    return seen.all(SavedBytesMeasured)[-1]


def packed(reentrant: bool | None) -> int:
    """Bytes that hooks on saved tensors are shown in one forward: of a region what it keeps, not what is saved within it."""
    torch.manual_seed(0)
    model = Deep(reentrant)
    own = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    alive: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            alive[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(torch.ones(ROWS, WIDTH)).sum()
    total = sum(tensor.untyped_storage().nbytes() for tensor in alive.values())
    loss.backward()
    return total


@pytest.mark.parametrize("reentrant", [False, True])
def test_region_keeps_its_inputs_once(reentrant: bool) -> None:
    seen, _ = train(reentrant)
    # Of each block its input, and that of the first layer.
    assert seen.ledgers(Phase.FORWARD)[-1].held.activations == BATCH + BLOCKS * BATCH
    assert saved(seen).total == BATCH + BLOCKS * BATCH
    assert by_path(seen, saved(seen).region_inputs) == {f"blocks.{i}": BATCH for i in range(BLOCKS)}
    assert by_path(seen, saved(seen).by_module) == {"first": BATCH, **{f"blocks.{i}": BATCH for i in range(BLOCKS)}}


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_hooks_on_saved_tensors_count_the_same(reentrant: bool | None) -> None:
    seen, _ = train(reentrant)
    assert saved(seen).total == packed(reentrant)


def test_without_a_checkpoint_nothing_is_said_of_any() -> None:
    seen, _ = train(None)
    assert (saved(seen).recomputed, saved(seen).region_inputs) == ((), ())


@needs_packed
def test_recomputed_bytes_are_those_otherwise_kept() -> None:
    plain, _ = train(None)
    seen, _ = train(False)
    expected = {
        path: size
        for path, size in by_path(plain, saved(plain).by_module).items()
        # The first layer of each block would have kept its input, which the region keeps instead.
        if path != "first" and not path.endswith("fc1")
    }
    assert by_path(seen, saved(seen).recomputed) == expected
    assert sum(expected.values()) > BLOCKS * ROWS * HIDDEN * 4


@needs_packed
def test_of_reentrant_region_bytes_are_those_of_whole() -> None:
    seen, other = train(True)[0], train(False)[0]
    whole = sum(size or 0 for size in saved(other).recomputed) // BLOCKS
    assert by_path(seen, saved(seen).recomputed) == {f"blocks.{i}": whole for i in range(BLOCKS)}


@pytest.mark.parametrize("reentrant", [False, True])
def test_training_is_bit_for_bit_the_same(reentrant: bool) -> None:
    _, seen = train(reentrant, 4)
    torch.manual_seed(0)
    alone = Deep(reentrant)
    run(alone, 4)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    again = Deep(reentrant)
    with watched():
        run(again, 4)
    assert torch.equal(torch.get_rng_state(), after)
    for one, other, third in zip(seen.parameters(), alone.parameters(), again.parameters()):
        assert torch.equal(one, other)
        assert torch.equal(other, third)


def test_region_still_stops_as_early_as_it_can() -> None:
    calls: list[str] = []

    class Last(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            calls.append("last")
            return x + 1

    # What comes after the last tensor that is saved need not run again.
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), Last())
    with watched() as seen:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = nn.ModuleList([model])
        checkpoint(outer[0], torch.ones(ROWS, WIDTH), use_reentrant=False).sum().backward()
        optimizer.step()
    assert calls == ["last"]
    assert sum(size or 0 for size in saved(seen).recomputed) == BATCH * ARE_SHOWN


def test_unrepeatable_region_fails_as_without_us() -> None:
    times: list[int] = []

    def unsteady(x: Tensor) -> Tensor:
        times.append(1)
        return x.sin() if len(times) == 1 else (x * 2)[:1].sin()

    model = nn.Linear(WIDTH, WIDTH)
    with watched():
        loss = checkpoint(unsteady, model(torch.ones(ROWS, WIDTH)), use_reentrant=False).sum()
        with pytest.raises(checkpointing.CheckpointError):
            loss.backward()


def test_recomputed_bytes_are_unknown_without_torchs_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.probe.autograd.recomputation.recomputation_hook", lambda: None)
    seen, _ = train(False)
    found = by_path(seen, saved(seen).recomputed)
    assert found
    assert set(found.values()) == {None}
    assert saved(seen).total == BATCH + BLOCKS * BATCH


def test_torch_still_has_hook_that_is_listened_to() -> None:
    from gradtui.probe.torch_private.saved_hooks import recomputation_hook

    assert recomputation_hook() is not None


def test_keyword_arguments_of_a_region_are_kept_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, *, by: Tensor) -> Tensor:
            return self.fc(x) * by

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Scaled()

        def forward(self, x: Tensor) -> Tensor:
            by = torch.full((ROWS, 1), 2.0)
            return checkpoint(self.inner, x, by=by, use_reentrant=False)

    model = Outer()
    with watched() as seen:
        run(model, 1)
    assert by_path(seen, saved(seen).region_inputs) == {"inner": BATCH + ROWS * 4}


@pytest.mark.parametrize("reentrant", [False, True])
def test_segments_of_a_sequence_are_known_as_well(reentrant: bool) -> None:
    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH)
            self.body = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint_sequential(self.body, 2, self.first(x), use_reentrant=reentrant)

    with watched() as seen:
        run(Segments(), 2)
    # The last segment is never checkpointed: two layers of four are, with one input.
    assert sum(saved(seen).region_inputs) == BATCH
    # What each Tanh of the first segment has made; the second result is the last segment's input, yet made anew.
    assert sum(size or 0 for size in saved(seen).recomputed) == 2 * BATCH * (reentrant or ARE_SHOWN)
