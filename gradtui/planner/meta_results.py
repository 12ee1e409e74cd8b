"""Run operations on the device "meta", and compute only once what they return for the same shapes. Any thread."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import torch

from gradtui.named_tuple import NamedTuple
from gradtui.planner.meta_tensors import META, tensors_in
from gradtui.probe.torch_private.operation_mode import OperationMode


class _Shape(NamedTuple):
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class MetaResults(OperationMode):
    """Keeps the shapes of what operations have returned.

    Many operations have only an implementation in Python there, which takes up to a millisecond. The layers of a model repeat
    the same shapes, and so does each plan. What an operation returns on that device follows from the shapes, strides and dtypes
    of its tensors and from its other arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Hashable, Any] = {}
        """Operation and arguments -> the shapes of the result; None if it is to be computed each time."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, or return new tensors of the shapes that it is known to return."""
        kwargs = kwargs or {}
        if not _returns_new_tensors(func):
            return func(*args, **kwargs)
        try:
            key = func, _key(args), _key(tuple(kwargs.items()))
            found = self._known.get(key)
        except TypeError:
            return func(*args, **kwargs)
        if found is not None:
            return _made(found)
        result = func(*args, **kwargs)
        if key not in self._known:
            self._known[key] = _shapes(result) if _is_new(result, (*args, *kwargs.values())) else None
        return result


@cache
def _returns_new_tensors(function: Any) -> bool:
    schema = function._schema  # noqa: SLF001 - as torch's own modes do
    return not schema.is_mutable and not any(each.alias_info is not None for each in schema.returns)


def _key(value: Any) -> Hashable:
    """Return all that the shape of a result can depend on. Raises TypeError for what cannot be compared."""
    if isinstance(value, torch.Tensor):
        if value.device != META or value.layout is not torch.strided or value.is_complex():
            # A complex tensor may be a conjugate view, which some results are then, too.
            raise TypeError
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    # 1, 1.0 and True are equal, and lead to different dtypes.
    return type(value), value


def _is_new(result: Any, arguments: Sequence[Any]) -> bool:
    """Return whether a result consists of whole tensors that share no memory, with each other or with the arguments."""
    if _shapes(result) is None:
        return False
    seen = {_identity(each) for each in tensors_in(arguments)}
    for each in tensors_in(result):
        is_plain = each.device == META and each.layout is torch.strided and not each.is_complex()
        if not is_plain or _identity(each) in seen or not _is_whole(each):
            return False
        seen.add(_identity(each))
    return True


def _identity(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - the identity of a storage
    return key


def _is_whole(tensor: torch.Tensor) -> bool:
    other: torch.Tensor = _made(_shapes(tensor))
    return tensor.untyped_storage().nbytes() == other.untyped_storage().nbytes()


def _shapes(result: Any) -> Any:
    """Return the shape of each tensor in a result; None if there is anything else in it."""
    if isinstance(result, torch.Tensor):
        return _Shape(result.shape, result.stride(), result.dtype)
    if type(result) not in (tuple, list):
        return None
    shapes = [_shapes(each) for each in result]
    return None if None in shapes else type(result)(shapes)


def _made(shapes: Any) -> Any:
    if isinstance(shapes, _Shape):
        return torch.empty_strided(shapes.shape, shapes.stride, dtype=shapes.dtype, device=META)
    return type(shapes)(map(_made, shapes))
