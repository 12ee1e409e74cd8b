"""Models as people really train them, built from configurations of transformers: bytes against arithmetic and autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from helpers.saved_tensors import packed_bytes
from helpers.watched import CountingAllocator, Watched, watched
from torch import Tensor, nn

from gradtui.protocol.events import MemoryMeasured, SavedBytesMeasured
from gradtui.protocol.vocabulary import Phase

transformers = pytest.importorskip("transformers")

ROWS, TOKENS, WORDS, SIDE = 4, 12, 50, 32
Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Model:
    """A way to make a model, and a batch that it computes its own loss from."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Batch]


def words() -> Batch:
    tokens = torch.arange(ROWS * TOKENS).view(ROWS, TOKENS) % WORDS
    return {"input_ids": tokens, "attention_mask": torch.ones(ROWS, TOKENS, dtype=torch.long), "labels": tokens.clone()}


def images() -> Batch:
    return {"pixel_values": torch.linspace(-1, 1, ROWS * 3 * SIDE * SIDE).view(ROWS, 3, SIDE, SIDE),
            "labels": torch.arange(ROWS) % 3}  # fmt: skip


def gpt2(**more: Any) -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=32, n_layer=2, n_head=2, **more)
    )


def bert() -> nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=TOKENS,
        )
    )  # fmt: skip


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=SIDE,
            patch_size=8, num_labels=3,
        )
    )  # fmt: skip


def resnet() -> nn.Module:
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=3
        )
    )


MODELS = {
    "gpt2": Model(gpt2, words),
    "bert": Model(bert, words),
    "vit": Model(vit, images),
    "resnet": Model(resnet, images),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().train()


def size_of(tensors: Any) -> int:
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def train(module: nn.Module, batch: Batch, steps: int = 2) -> Watched:
    with watched(allocator=CountingAllocator()) as seen:
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
        for _ in range(steps):
            module(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


def test_activations_are_what_autograd_packs(model: Model) -> None:
    plain = built(model.make)
    expected = packed_bytes(plain, lambda: plain(**model.batch()).loss)
    seen = train(built(model.make), model.batch(), steps=1)
    (forward,) = seen.ledgers(Phase.FORWARD)
    assert forward.held.activations == expected > 0
    (saved,) = seen.all(SavedBytesMeasured)
    assert saved.total == expected >= sum(saved.by_module)
    assert seen.ledgers(Phase.BACKWARD)[0].held.activations == 0


def test_categories_match_arithmetic_in_every_phase(model: Model) -> None:
    module, batch = built(model.make), model.batch()
    reference = built(model.make)
    reference(**batch).loss.backward()
    reached = [p for p in reference.parameters() if p.grad is not None]
    parameters = size_of(module.parameters())
    buffers = size_of(module.buffers())
    gradients = sum(p.numel() * p.element_size() for p in reached)
    # Two averages for each element, and a step counter for each tensor.
    moments = sum(2 * p.numel() * p.element_size() + 4 for p in reached)
    inputs = sum(tensor.numel() * tensor.element_size() for tensor in batch.values())
    seen = train(module, batch)
    assert {ledger.phase for ledger in seen.all(MemoryMeasured)} >= {
        Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD,
    }  # fmt: skip
    for ledger in seen.all(MemoryMeasured):
        held, phase, what = ledger.held, ledger.phase, f"{ledger.phase} {ledger.step}"
        assert (held.parameters, held.buffers, held.offloaded) == (parameters, buffers, 0), what
        if phase in (Phase.BACKWARD, Phase.OPTIMIZER):
            assert held.gradients == gradients, what
        if phase in (Phase.FORWARD, Phase.ZERO_GRAD):
            assert held.gradients == 0, what
        stepped = ledger.step > 1 or phase in (Phase.OPTIMIZER, Phase.DATA, Phase.ZERO_GRAD)
        assert held.optimizer_state == (moments if stepped else 0), what
        if phase in (Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD):
            assert (held.activations, held.input) == (0, inputs), what
        assert sum(size or 0 for size in held.within_total().values()) == held.total, what


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_says_what_is_computed_again(reentrant: bool) -> None:
    def without() -> nn.Module:
        # With checkpoints there is no cache of keys and values, which would be kept for backward as well.
        return gpt2(use_cache=False)

    def checkpointed() -> nn.Module:
        module = without()
        enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
        enable({"use_reentrant": reentrant})
        return module

    plain = train(built(without), words())
    seen = train(built(checkpointed), words())
    (before, after) = (each.all(SavedBytesMeasured)[-1] for each in (plain, seen))
    again = built(checkpointed)
    assert after.total == packed_bytes(again, lambda: again(**words()).loss)
    assert after.total < before.total / 2
    paths = [module.path for module in seen.state.tree.modules]
    kept = {path: size for path, size in zip(paths, after.region_inputs) if size}
    hidden = ROWS * TOKENS * 32 * 4
    assert set(kept) == {"transformer.h.0", "transformer.h.1"}
    # Each block keeps what it is given, and beside that no more than masks and positions.
    assert all(hidden <= size < 2 * hidden for size in kept.values())
    recomputed = [size for size in after.recomputed if size != 0]
    assert None not in recomputed
    # What a block would have kept, but for its own input.
    of_blocks = sum(size for path, size in zip(paths, before.by_module) if path.startswith("transformer.h."))
    assert sum(size or 0 for size in recomputed) == of_blocks - 2 * hidden
