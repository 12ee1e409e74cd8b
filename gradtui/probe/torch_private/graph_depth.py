"""Limit the depth of autograd graphs that gradtui walks. Training thread.

When a graph is freed, each node with a Python object takes space on the C stack. Measured with torch 2.13: on a stack of 8
MiB a chain of 40,000 such operations is freed, one of 50,000 ends the process with a segmentation fault; on a stack of 1
MiB it is 2,000 and 5,000. Without Python objects a chain of a million is freed. So code that walks a graph must know
beforehand that it is not too deep for the training thread, without creating Python objects for too many nodes.
"""

from __future__ import annotations

import ctypes
import heapq
import threading
from collections.abc import Iterable

from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of

DEEPEST = 10_000
"""Operations on one path, on a stack of 8 MiB or more: a quarter of the measured safe number."""
_BYTES_OF_EACH = 800
"""Stack bytes per operation: four times the measured number."""
_MIN = 1 << 20
"""The stack size in bytes that is assumed where it is not known."""
_ROOM_FOR_ATTRIBUTES = 256
"""Bytes, more than a `pthread_attr_t` has on any platform."""


class TooDeepError(Exception):
    """Raised for a graph that is too deep to be walked safely."""


def deepest() -> int:
    """Return the longest path that the calling thread can free, in operations: at most `DEEPEST`, fewer on a small stack."""
    stack = _stack_of_main() if threading.current_thread() is threading.main_thread() else _stack_of_thread()
    return min(DEEPEST, stack // _BYTES_OF_EACH)


def _stack_of_main() -> int:
    try:
        import resource
    except ImportError:
        return _MIN
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return limit if limit != resource.RLIM_INFINITY else DEEPEST * _BYTES_OF_EACH


def _stack_of_thread() -> int:
    """Return the stack size of the calling thread, which is not the main one.

    `threading.stack_size()` would reset the script's value.
    """
    try:
        libc = ctypes.CDLL(None)
        attributes, size = ctypes.create_string_buffer(_ROOM_FOR_ATTRIBUTES), ctypes.c_size_t()
        if libc.pthread_getattr_np(ctypes.c_ulong(threading.get_ident()), attributes):
            return _MIN
        libc.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        libc.pthread_attr_destroy(attributes)
    except (OSError, TypeError, AttributeError):
        # Neither macOS nor Windows has these functions.
        return _MIN
    return size.value


def is_too_deep(roots: Iterable[GraphNode], most: int) -> bool:
    """Return whether a path of more than `most` operations begins at these nodes. Visits no nodes that are deeper than that.

    The node with the highest number comes next. Autograd records operations after those whose results they take, so all
    nodes that lead to it have come before, and its depth is known.
    """
    depths = dict.fromkeys(roots, 0)
    waiting = [(-number_of(node), index, node) for index, node in enumerate(depths)]
    heapq.heapify(waiting)
    while waiting:
        _, _, node = heapq.heappop(waiting)
        depth = depths[node] + 1
        if depth > most:
            return True
        for next_node, _ in node.next_functions:
            if next_node is None or leaf_of(next_node) is not None:
                continue
            if next_node not in depths:
                heapq.heappush(waiting, (-number_of(next_node), len(depths), next_node))
            depths[next_node] = max(depth, depths.get(next_node, 0))
    return False
