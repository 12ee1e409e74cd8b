"""Which exceptions are failed allocations, told by messages as torch, NumPy and Python write them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradtui.probe.memory.allocation_failures import allocation_failure

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 15.77 GiB of which 1.03 GiB is free. "
    "Process 1 has 14.74 GiB memory in use."
)


@pytest.mark.parametrize(
    ("error", "device", "requested"),
    [
        (torch.OutOfMemoryError(CUDA), "cuda:1", 2.5 * 2**30),
        (torch.OutOfMemoryError("of the script's own making"), "cuda", None),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), "cuda", None),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "cuda", None),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8.0 GiB). Tried to allocate 256 bytes"), "mps", 256),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."), "cpu", 4096),
        (MemoryError(), "cpu", None),
    ],
)
def test_failed_allocations(error: BaseException, device: str, requested: float | None) -> None:
    failure = allocation_failure(error)
    assert (failure.device, failure.requested) == (device, requested)
    assert failure.message == str(error).partition("\n")[0]


def test_real_failures_tell_what_was_asked_for() -> None:
    # Above 2**53, where a float would round.
    wanted = (1 << 58) + 4
    with pytest.raises(RuntimeError) as torch_one:
        torch.empty(wanted // 4)
    assert allocation_failure(torch_one.value).requested == wanted  # type: ignore[union-attr]
    with pytest.raises(MemoryError) as numpy_one:
        np.empty(1 << 57, dtype=np.float64)
    assert allocation_failure(numpy_one.value).requested == 1 << 60  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error",
    [RuntimeError("shapes cannot be multiplied"), RecursionError("out of memory"), ValueError("out of memory"), None],
)
def test_other_errors_are_none(error: BaseException | None) -> None:
    assert allocation_failure(error) is None
