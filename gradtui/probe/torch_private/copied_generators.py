"""Find generators of random numbers that a data set keeps, and that each worker of a DataLoader gets a copy of. Any thread.

Workers are made at the beginning of an epoch from the data set as it is in this process, where nothing draws from it. PyTorch
seeds the global generators of each worker, and no others (torch/utils/data/_utils/worker.py). No code of the script runs here.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_GENERATORS = {
    ("numpy.random.mtrand", "RandomState"),
    ("numpy.random._generator", "Generator"),
    ("random", "Random"),
    ("torch._C", "Generator"),
    ("torch", "Generator"),
}
_ENTRIES = ("__getitem__", "__getitems__", "__iter__")
_OWN_SEED = frozenset({
    "seed", "manual_seed", "initial_seed", "get_worker_info", "set_state", "setstate", "state", "spawn", "worker_id",
})  # fmt: skip
"""Names in code that may give each worker, or each sample, random numbers of its own."""
_COPIES = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getattr__", "__getattribute__")
_MAX = 32
"""Methods of a data set that are read."""


def copied_generator(iterator: Any) -> str:
    """Return the attribute of the data set of a DataLoader's iterator, as "Class.attribute"; "" if there is none.

    The code that loads samples draws from it, and nothing gives a worker another state.
    """
    if not getattr(iterator, "_num_workers", 0) or getattr(iterator, "_worker_init_fn", None) is not None:
        return ""
    data: Any = getattr(iterator, "_dataset", None)
    while type(data).__module__.startswith("torch.utils.data.") and type(data).__name__ == "Subset":
        data = data.dataset
    kind, fields = type(data), getattr(data, "__dict__", None)
    if type(fields) is not dict or any(name in vars(each) for each in kind.__mro__[:-1] for name in _COPIES):
        return ""
    kept = {name for name, value in fields.items() if (type(value).__module__, type(value).__name__) in _GENERATORS}
    if not kept:
        return ""
    codes = [*_codes(kind)]
    names = {name for code in codes for name in code.co_names}
    written = {each.argval for code in codes for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"}
    if names & _OWN_SEED or written & kept:
        return ""
    # What the main process draws in another method, once an epoch, makes the next epoch another one.
    others = {
        name
        for each in kind.__mro__[:-1]
        for method in vars(each).values()
        if isinstance(method, FunctionType) and method.__name__ != "__init__" and method.__code__ not in codes
        for name in method.__code__.co_names
    }
    return next((f"{kind.__name__}.{name}" for name in sorted((kept & names) - others)), "")


def _codes(kind: type) -> Iterator[CodeType]:
    """Yield the code of the methods that load samples, of those whose names it has, and of functions within it."""
    waiting, seen = [*_ENTRIES], {*_ENTRIES}
    while waiting and len(seen) < _MAX:
        method = _function(kind, waiting.pop())
        codes = [method.__code__] if method is not None else []
        while codes:
            code = codes.pop()
            yield code
            codes += [each for each in code.co_consts if isinstance(each, CodeType)]
            new = {*code.co_names} - seen
            seen |= new
            waiting += new


def _function(kind: type, name: str) -> FunctionType | None:
    found = next((vars(each)[name] for each in kind.__mro__[:-1] if name in vars(each)), None)
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    return found if isinstance(found, FunctionType) else None
