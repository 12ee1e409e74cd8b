"""Detect the capture of a CUDA graph. During one, gradtui must not query events, launch kernels, copy or allocate.

`cudaEventQuery` and `cudaMalloc` invalidate a capture in its default mode, on whatever thread they are called. A kernel
that gradtui launches on the captured stream would become part of the script's graph. Any thread. Not yet confirmed on a
device.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

open_captures: weakref.WeakSet[Any] = weakref.WeakSet()
"""The graphs whose `capture_begin` was called and whose `capture_end` was not (`cuda_graphs.py` keeps this up to date)."""


def is_capturing() -> bool:
    """Return whether a graph is being captured through torch on any stream, or on the current stream. Waits for nothing."""
    return bool(open_captures) or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
