"""What autograd keeps under another choice of what trains, for models of transformers, made from configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.recorded_steps import STEPS, replay_of, train, trainable
from patterns import kept, patterns
from torch import Tensor, nn

from gradtui.planner import Plan

pytestmark = pytest.mark.slow

IDS = torch.arange(32).view(2, 16) % 90
TEXT = {"input_ids": IDS, "labels": IDS}
PICTURES = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), "labels": torch.tensor([0, 1])}
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
MODELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Tensor]]] = {
    "BERT": ("BertForMaskedLM", "BertConfig", {"vocab_size": 90, **SMALL}, TEXT),
    "GPT-2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": 90, "n_embd": 32, "n_layer": 3, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}, TEXT,
    ),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", {"vocab_size": 90, **SMALL}, TEXT),
    "ViT": ("ViTForImageClassification", "ViTConfig", {"image_size": 32, "patch_size": 8, **SMALL}, PICTURES),
    "T5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": 90, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
        TEXT,
    ),
    "ResNet": (
        "ResNetForImageClassification", "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}, PICTURES,
    ),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """Return a model with weights of its own, and its loss at a step."""
    transformers = pytest.importorskip("transformers")
    model_type, configuration_type, settings, batch = MODELS[name]
    torch.manual_seed(0)
    model: nn.Module = getattr(transformers, model_type)(getattr(transformers, configuration_type)(**settings))
    model.train()
    return model, lambda _: model(**batch).loss


@pytest.mark.parametrize("name", MODELS)
def test_saved_bytes_and_gradients_of_written_model(name: str) -> None:
    model, loss = made(name)
    now = trainable(model)
    replay, _, measured = replay_of(train(model, loss))
    before = replay.under(Plan(now))
    for chosen, trains in patterns(model).items():
        found = kept(model, trains, lambda: loss(STEPS))
        assert found is not None, chosen
        after = replay.under(Plan(trains))
        assert (measured + after.saved - before.saved, after.reached, after.unknown) == (*found, ()), chosen
