"""Read the sizes of the buckets in which DistributedDataParallel holds a second copy of the gradients. Training thread.

The buckets belong to a reducer in C++, and no tensor in Python leads to their storage. Only a private method of the wrapper
reports their sizes, and only this module uses it: `_get_ddp_logging_data` returns `bucket_sizes` in bytes,
`rebuilt_bucket_sizes` once the first backward has reordered the buckets, and `gradient_as_bucket_view`. Where it is missing
the sizes count as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gradtui.probe.model.module_tree import ModuleTree


def bucket_bytes(tree: ModuleTree) -> tuple[int, ...]:
    """Return for each model the bytes of buckets that hold a copy of its gradients; 0 where the gradients are views of them."""
    sizes = [0] * len(tree.models)
    ends = [model.root + tree.modules[model.root].subtree_modules for model in tree.models]
    model = 0
    for index, module in tree.live_modules():
        while index >= ends[model]:
            model += 1
        account = getattr(type(module), "_get_ddp_logging_data", None)
        if account is not None:
            # If this private method fails, the other measurements of the step must continue.
            with suppress(Exception):
                sizes[model] += _copied(account(module))
    return tuple(sizes)


def _copied(account: Mapping[str, Any]) -> int:
    if account.get("gradient_as_bucket_view"):
        return 0
    listed = account.get("rebuilt_bucket_sizes") or account.get("bucket_sizes") or ""
    return sum(int(size) for size in str(listed).split(",") if size.strip())
