"""How deep a graph may be for us to look at it. Training thread.

A node that Python has seen takes its turn on the C stack when the graph is freed (measured with torch 2.13: on a stack of 8 MiB
a chain of 40,000 such operations is freed, one of 50,000 ends the process with a segmentation fault; on one of 1 MiB it is
2,000 and 5,000; none of them seen, a million is freed). So whoever looks at a graph must know beforehand that it is not too
deep for the thread that trains, without seeing too much of it.
"""

from __future__ import annotations

import ctypes
import heapq
import threading
from collections.abc import Iterable

from gradtui.probe.torch_private.private_names import GraphNode, leaf_of, number_of

DEEPEST = 10_000
"""Operations on one way, on a stack of 8 MiB or more: a quarter of what was seen to be safe."""
_BYTES_OF_EACH = 800
"""Of the stack: four times what an operation was seen to take."""
_LEAST = 1 << 20
"""Assumed where the stack is not known."""
_ROOM_FOR_ATTRIBUTES = 256
"""Bytes, more than a `pthread_attr_t` has anywhere."""


class TooDeepError(Exception):
    """A graph that nobody must look at."""


def deepest() -> int:
    """How many operations one way may have where the calling thread frees them: at most `DEEPEST`, fewer on a small stack."""
    stack = _stack_of_main() if threading.current_thread() is threading.main_thread() else _stack_of_thread()
    return min(DEEPEST, stack // _BYTES_OF_EACH)


def _stack_of_main() -> int:
    try:
        import resource
    except ImportError:
        return _LEAST
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return limit if limit != resource.RLIM_INFINITY else DEEPEST * _BYTES_OF_EACH


def _stack_of_thread() -> int:
    """Of the calling thread, which is not the main one. `threading.stack_size()` would set the script's value back."""
    try:
        libc = ctypes.CDLL(None)
        attributes, size = ctypes.create_string_buffer(_ROOM_FOR_ATTRIBUTES), ctypes.c_size_t()
        if libc.pthread_getattr_np(ctypes.c_ulong(threading.get_ident()), attributes):
            return _LEAST
        libc.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        libc.pthread_attr_destroy(attributes)
    except (OSError, TypeError, AttributeError):
        # Neither macOS nor Windows has these.
        return _LEAST
    return size.value


def is_too_deep(roots: Iterable[GraphNode], most: int) -> bool:
    """Whether a way of more than `most` operations begins at these nodes. Sees none that are deeper than that.

    The node with the highest number comes next: operations are recorded after those whose results they take, so whatever
    leads to it has come before, and how deep it is is known.
    """
    depths = dict.fromkeys(roots, 0)
    waiting = [(-number_of(node), place, node) for place, node in enumerate(depths)]
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
