"""Tell whether compiled code replays CUDA graphs. Training thread; checked without a device only.

As read in torch 2.13 (`torch/_inductor/cudagraph_trees.py`): code compiled with `mode="reduce-overhead"` has a manager of its
graphs for each device, in a dictionary of the thread. There is none before the first such code runs.
"""

from __future__ import annotations

import sys


def replays_graphs() -> bool:
    """Return whether compiled code that this thread has run replays graphs, whose inputs and outputs have fixed places."""
    local = getattr(sys.modules.get("torch._inductor.cudagraph_trees"), "local", None)
    containers = getattr(local, "tree_manager_containers", None)
    if not isinstance(containers, dict):
        return False
    return any(getattr(each, "tree_manager", None) is not None for each in containers.values())
