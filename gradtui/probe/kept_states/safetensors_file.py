"""Write tensors in the format of safetensors, without a second copy of their values.

A file begins with eight bytes, the length of the header. The header is JSON: for each tensor its dtype, its shape, and where
its values are in the rest of the file; `__metadata__` has texts by name. Source: README of huggingface/safetensors, "Format".
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import torch

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64",
}  # fmt: skip
_NAMES = {found: name for name, written in _DTYPES.items() if (found := getattr(torch, written, None)) is not None}
_METADATA = "__metadata__"
_ALIGNMENT = 8
_STRETCH = 16 << 20
"""Bytes that are written at once."""


def has_dtype(tensor: torch.Tensor) -> bool:
    """Return whether the format has the dtype of a tensor."""
    return tensor.dtype in _NAMES


def write_safetensors(
    stream: BinaryIO, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], written: Callable[[int], None]
) -> None:
    """Write strided tensors on the CPU.

    Args:
        stream: the file.
        tensors: by name. The format must have their dtypes.
        metadata: texts by name.
        written: receives the number of bytes after each piece.

    Raises:
        OSError: the file cannot be written.
    """
    # Values of larger elements come first, so that all of them are aligned.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
    header: dict[str, object] = {_METADATA: dict(metadata)}
    end = 0
    for name, tensor in ordered.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]
        }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    for tensor in ordered.values():
        for piece in _pieces(tensor.contiguous()):
            stream.write(piece)
            written(len(piece))


def _pieces(tensor: torch.Tensor) -> Iterator[memoryview]:
    if not tensor.nbytes:
        return
    # NumPy, which may be missing, has no bfloat16.
    values = memoryview((ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())).cast("B")
    for begin in range(0, tensor.nbytes, _STRETCH):
        yield values[begin : begin + _STRETCH]
