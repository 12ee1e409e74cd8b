"""The zoo and the loops in plain torch: each specimen trains, and is what it says; each loop does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
import torch
from helpers.examples import combinations
from helpers.loops import INF_STEP, LOOPS, MICRO_BATCHES, UNSUITED, Loop, grad_scaler, plain
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from zoo import SPECIMENS, Specimen


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from a second thread, and lose much where the cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(name: str, loop: Loop, steps: int) -> Specimen:
    """A new specimen after `steps` steps, from a fixed state of the global generator."""
    specimen = SPECIMENS[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        loop(specimen.model, specimen.batch, specimen.loss, steps)
    return specimen


def same(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def gradients(name: str) -> dict[str, Tensor | None]:
    """Of each parameter, after one forward and backward of a new specimen."""
    specimen = SPECIMENS[name]()
    specimen.loss(specimen.model(*specimen.batch(0))).backward()  # type: ignore[no-untyped-call]
    return {path: parameter.grad for path, parameter in specimen.model.named_parameters()}


@pytest.mark.parametrize("name", SPECIMENS)
def test_specimen_trains_two_steps(name: str) -> None:
    specimen = train(name, plain, steps=2)
    assert all(bool(torch.isfinite(p).all()) for p in specimen.model.parameters())
    assert not same(specimen.model, train(name, plain, steps=1).model)


@pytest.mark.parametrize("name", SPECIMENS)
def test_factory_repeats_itself_and_leaves_global_generator_alone(name: str) -> None:
    generator_before = torch.get_rng_state()
    first, second = SPECIMENS[name](), SPECIMENS[name]()
    batches = first.batch(3), second.batch(3), first.batch(4)
    assert torch.equal(torch.get_rng_state(), generator_before)
    assert first.name == name
    assert first.model is not second.model
    if not any(is_lazy(p) for p in first.model.parameters()):
        assert same(first.model, second.model)
    assert all(torch.equal(a, b) for a, b in zip(batches[0], batches[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(batches[0], batches[2], strict=True))


@pytest.mark.parametrize(
    ("name", "loop"), [each for each in combinations(SPECIMENS, LOOPS) if each[0] not in UNSUITED.get(each[1], ())]
)
def test_loop_moves_specimen_the_same_way_twice(name: str, loop: str) -> None:
    trained, untrained = train(name, LOOPS[loop], steps=2).model, SPECIMENS[name]().model
    assert same(trained, train(name, LOOPS[loop], steps=2).model)
    assert any(is_lazy(p) for p in untrained.parameters()) or not same(trained, untrained)


def test_unsuited_names_loops_and_specimens_that_exist() -> None:
    assert UNSUITED.keys() <= LOOPS.keys()
    assert frozenset().union(*UNSUITED.values()) <= SPECIMENS.keys()


@pytest.mark.parametrize("loop", ["accumulation", "accumulation_clipped"])
def test_accumulation_takes_several_batches_a_step(loop: str) -> None:
    specimen = SPECIMENS["mlp"]()
    seeds: list[int] = []

    def batch(seed: int) -> tuple[Tensor, ...]:
        seeds.append(seed)
        return specimen.batch(seed)

    LOOPS[loop](specimen.model, batch, specimen.loss, 3)
    assert seeds == list(range(3 * MICRO_BATCHES))


def test_grad_scaler_skips_the_infinite_step() -> None:
    until = train("mlp", grad_scaler, steps=INF_STEP).model
    assert same(until, train("mlp", grad_scaler, steps=INF_STEP + 1).model)
    assert not same(until, train("mlp", grad_scaler, steps=INF_STEP + 2).model)


def test_step_in_backward_leaves_no_gradient() -> None:
    assert [p.grad for p in train("mlp", LOOPS["step_in_backward"], steps=1).model.parameters()] == [None] * 4


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("mlp", []),
        ("unused_branch", ["unused"]),
        ("under_no_grad", ["backbone"]),
        ("frozen_prefix", ["backbone"]),
        ("frozen_encoder_with_prompt", ["class_tokens", "text_encoder", "image_encoder"]),
        ("lora", ["0.base", "2.base"]),
    ],
)
def test_only_these_subtrees_get_no_gradient(name: str, without: list[str]) -> None:
    for path, gradient in gradients(name).items():
        expected = any(path == prefix or path.startswith(f"{prefix}.") for prefix in without)
        assert (gradient is None) == expected, path


def test_kinds_of_gradients() -> None:
    assert cast("Tensor", gradients("sparse_embedding")["0.weight"]).is_sparse
    assert cast("Tensor", gradients("complex_parameter")["filter"]).is_complex()
    assert cast("Tensor", gradients("zero_size_parameter")["prompt"]).numel() == 0
    assert cast("Tensor", gradients("bf16")["fc1.weight"]).dtype == torch.bfloat16
    lora = gradients("lora")
    assert not cast("Tensor", lora["0.lora_a"]).any()
    assert cast("Tensor", lora["2.lora_b"]).any()


def test_sharing() -> None:
    gpt = SPECIMENS["tied_gpt"]().model
    assert cast("nn.Linear", gpt.lm_head).weight is cast("nn.Embedding", gpt.tok_emb).weight
    shared = SPECIMENS["shared_module"]().model
    assert shared.first is shared.second


def test_lazy_has_no_shape_before_its_first_forward() -> None:
    specimen = SPECIMENS["lazy"]()
    assert all(is_lazy(p) for p in specimen.model.parameters())
    specimen.model(*specimen.batch(0))
    assert not any(is_lazy(p) for p in specimen.model.parameters())


def test_nested_200_is_200_deep() -> None:
    deepest = max(path.count(".") for path, _ in SPECIMENS["nested_200"]().model.named_modules())
    assert deepest + 1 == 200


def test_checkpointed_enters_each_block_again_in_backward() -> None:
    specimen = SPECIMENS["checkpointed"]()
    calls: list[nn.Module] = []
    blocks = list(cast("nn.ModuleList", specimen.model.blocks))
    for block in blocks:
        block.register_forward_pre_hook(lambda module, inputs: calls.append(module))
    value = specimen.loss(specimen.model(*specimen.batch(0)))
    assert calls == blocks
    value.backward()  # type: ignore[no-untyped-call]
    assert calls == blocks + blocks[::-1]
