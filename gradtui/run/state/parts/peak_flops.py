"""The peak rates of common devices, in floating-point operations per second by dtype. Pure.

The figures are those of the vendors' data sheets and white papers, without sparsity and with sums in single precision. They are
NVIDIA's data sheets of the A10, A30, A40, A100, H100, H200, L4, L40, L40S, T4, V100, RTX A6000 and RTX 6000 Ada, NVIDIA's white
papers of GA102 (RTX 3090) and Ada (RTX 4090), and AMD's data sheet of the MI300X. "tf32" is single precision whose factors the
device rounds to 10 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def _peaks(
    single: float, tf32: float | None, half: float, eighth: float | None = None, bfloat: bool = True
) -> dict[str, float]:
    rates = {"float32": single, "tf32": single if tf32 is None else tf32, "float16": half}
    if bfloat:
        rates["bfloat16"] = half
    if eighth is not None:
        rates |= {"float8_e4m3fn": eighth, "float8_e5m2": eighth}
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


_A100 = _peaks(19.5, 156, 312)
_HOPPER = _peaks(67, 494.5, 989.5, 1979)
_HOPPER_NVL = _peaks(60, 417.5, 835.5, 1670.5)

_DEVICES: Sequence[tuple[str, dict[str, float]]] = (
    (r"NVIDIA A100-(SXM4|PCIE|PCIe)-\d+GB|NVIDIA A100 80GB PCIe|A100-(SXM4|PCIE)-40GB", _A100),
    (r"NVIDIA H100 80GB HBM3|NVIDIA H200|NVIDIA GH200 .*", _HOPPER),
    (r"NVIDIA H100 PCIe", _peaks(51, 378, 756, 1513)),
    (r"NVIDIA H100 NVL|NVIDIA H200 NVL", _HOPPER_NVL),
    (r"NVIDIA A10", _peaks(31.2, 62.5, 125)),
    (r"NVIDIA A30", _peaks(10.3, 82, 165)),
    (r"NVIDIA A40", _peaks(37.4, 74.8, 149.7)),
    (r"NVIDIA L4", _peaks(30.3, 60, 121, 242)),
    (r"NVIDIA L40", _peaks(90.5, 90.5, 181, 362)),
    (r"NVIDIA L40S", _peaks(91.6, 183, 362, 733)),
    (r"(NVIDIA |Tesla )?T4", _peaks(8.1, None, 65, bfloat=False)),
    (r"Tesla V100-SXM2-\d+GB", _peaks(15.7, None, 125, bfloat=False)),
    (r"Tesla V100-PCIE-\d+GB", _peaks(14, None, 112, bfloat=False)),
    (r"Tesla V100S-PCIE-\d+GB", _peaks(16.4, None, 130, bfloat=False)),
    (r"NVIDIA RTX A6000", _peaks(38.7, 77.4, 154.8)),
    (r"NVIDIA RTX 6000 Ada Generation", _peaks(91.1, 182.1, 364.2, 728.5)),
    (r"NVIDIA GeForce RTX 3090", _peaks(35.6, 35.6, 71)),
    (r"NVIDIA GeForce RTX 4090", _peaks(82.6, 82.6, 165.2, 330.3)),
    (r"AMD Instinct MI300X.*", _peaks(163.4, 653.7, 1307.4, 2614.9)),
)
"""By the name that `torch.cuda.get_device_name` returns. A part of a device (MIG) has another name, and its peak is unknown."""


def peak_flops(device: str, dtype: str) -> float | None:
    """Return the peak rate of a device in a dtype ("tf32" among them), in operations per second; None where it is unknown."""
    for pattern, rates in _DEVICES:
        if re.fullmatch(pattern, device):
            return rates.get(dtype)
    return None
