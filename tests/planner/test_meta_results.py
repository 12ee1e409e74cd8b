"""Operations on the device "meta" whose results are computed once: the shapes are those of the CPU, and views stay views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.operations import ListedOperations
from torch import Tensor

from gradtui.planner.meta_results import MetaResults
from gradtui.planner.meta_tensors import META, tensors_in

aten = torch.ops.aten

OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "int stays int": lambda x: aten.mul.Tensor(x.to(torch.int32), 2),
    "int times float": lambda x: aten.mul.Tensor(x.to(torch.int32), 2.0),
    "int times bool": lambda x: aten.mul.Tensor(x.to(torch.int32), True),
    "transposed": lambda x: aten.add.Tensor(x.t(), x.t()),
    "two dtypes": lambda x: aten.add.Tensor(x, x.double()),
    "broadcast": lambda x: aten.add.Tensor(x, x[0]),
    "three results": lambda x: aten.native_layer_norm.default(x, [6], None, None, 1e-5),
    "a list": lambda x: aten.unbind.int(x, 1),
    "softmax": lambda x: aten._softmax.default(x, -1, False),
    "sum over one": lambda x: aten.sum.dim_IntList(x, [0]),
    "sum over the other": lambda x: aten.sum.dim_IntList(x, [1], True),
    "channels last": lambda x: aten.relu.default(x.view(1, 2, 2, 6).contiguous(memory_format=torch.channels_last)),
    "of a dtype": lambda x: aten._to_copy.default(x, dtype=torch.float16),
    "zeros": lambda x: aten.zeros_like.default(x, dtype=torch.int64),
    "complex": lambda x: aten.mul.Tensor(torch.complex(x, x).conj(), 2),
}


def described(result: Any) -> list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype, int]]:
    return [
        (tuple(each.shape), each.stride(), each.dtype, each.untyped_storage().nbytes()) for each in tensors_in(result)
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_known_results_are_those_of_the_cpu(name: str) -> None:
    operation, results = OPERATIONS[name], MetaResults()
    expected = described(operation(torch.zeros(4, 6)))
    with results.entered():
        # All others first, some of which differ in little.
        for other in OPERATIONS.values():
            other(torch.empty(4, 6, device=META))
        for _ in range(2):
            assert described(operation(torch.empty(4, 6, device=META))) == expected


def test_operation_is_computed_once_for_same_shapes() -> None:
    below, results = ListedOperations(), MetaResults()
    first, second = (torch.empty(4, 6, device=META) for _ in range(2))
    with below.entered(), results.entered():
        made = [aten.relu.default(first), aten.relu.default(second), aten.relu.default(first.t())]
    assert below.names.count("aten.relu.default") == 2
    assert len({each.untyped_storage()._cdata for each in (first, second, *made)}) == 5


def test_views_and_changes_in_place_keep_their_memory() -> None:
    results, x = MetaResults(), torch.empty(4, 6, device=META)
    with results.entered():
        for _ in range(3):
            # The schema of `_unsafe_view` says of no result that it is a view.
            same = (aten._unsafe_view.default(x, [24]), aten.view.default(x, [24]), aten.relu_.default(x))
            assert {each.untyped_storage()._cdata for each in same} == {x.untyped_storage()._cdata}
            version = x._version
            aten.relu_.default(x)
            assert x._version == version + 1


def test_a_gradient_passes_through_known_results() -> None:
    results, x = MetaResults(), torch.empty(4, 6, device=META, requires_grad=True)
    with results.entered():
        nodes = [torch.relu(x).grad_fn, torch.relu(x).grad_fn]
    assert [node.name() for node in nodes if node is not None] == ["ReluBackward0"] * 2


def test_what_fails_fails_each_time() -> None:
    with MetaResults().entered():
        for _ in range(2):
            with pytest.raises(RuntimeError):
                aten.mm.default(torch.empty(2, 3, device=META), torch.empty(2, 3, device=META))
