"""Asking what compiles the frames of this thread frees nothing: torch 2.6 returns a reference that it does not count."""

from __future__ import annotations

import sys
from typing import Any

import torch

from gradtui.probe.torch_private.dynamo_frames import what_compiles


class Callback:
    def __call__(self, *frame: Any) -> None:
        """Compile nothing."""


def test_the_number_of_references_stays() -> None:
    callback = Callback()
    before = sys.getrefcount(callback), sys.getrefcount(None)
    torch._C._dynamo.eval_frame.set_eval_frame(callback)
    try:
        what_compiles()
    finally:
        torch._C._dynamo.eval_frame.set_eval_frame(None)
    for _ in range(1_000):
        what_compiles()
    after = sys.getrefcount(callback), sys.getrefcount(None)
    # Others may count a few references to None meanwhile.
    assert (after[0], abs(after[1] - before[1]) < 100) == (before[0], True)
