"""A dispatch mode within a context: it receives the operations of its thread, and changes nothing for other threads."""

from __future__ import annotations

import threading
from typing import Any

import torch
from helpers.operations import ListedOperations
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

FLAGS = ("_is_in_torch_dispatch_mode", "_is_in_non_infra_torch_dispatch_mode")


def process_flags() -> dict[str, bool]:
    """The flags of the process, as far as this version of torch has them."""
    return {name: getattr(_python_dispatch, name) for name in FLAGS if hasattr(_python_dispatch, name)}


class OfTheScript(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_it_receives_operations_until_context_is_left() -> None:
    mode, x = ListedOperations(), torch.zeros(2)
    with mode.entered():
        torch.relu(x)
        other = threading.Thread(target=torch.neg, args=(x,))
        other.start()
        other.join()
    torch.neg(x)
    assert mode.names == ["aten.relu.default"]


def test_other_thread_in_mode_finds_usual_flags() -> None:
    before, begins, ends = process_flags(), threading.Event(), threading.Event()

    def forecast() -> None:
        with ListedOperations().entered():
            begins.set()
            assert ends.wait(60)

    other = threading.Thread(target=forecast)
    with OfTheScript():  # type: ignore[no-untyped-call]
        within = process_flags()
        other.start()
        assert begins.wait(60)
        assert process_flags() == within
    assert process_flags() == before
    assert _get_current_dispatch_mode() is None
    ends.set()
    other.join()
    assert process_flags() == before
