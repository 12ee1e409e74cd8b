"""Kept states of the run: copies, in host memory, of everything that makes the run at a step, and the way back to them.

A copy has the values of the script's objects and weak references to the objects themselves. A return writes the values into the
same objects, and then compares every one of them with the copy. Training thread only, at a step boundary.
"""

from gradtui.probe.kept_states.copy_progress import CopyProgress
from gradtui.probe.kept_states.file_contents import FileContents
from gradtui.probe.kept_states.finite import BUFFERS, not_finite
from gradtui.probe.kept_states.held_state import Container, HeldState, held_state, items_of
from gradtui.probe.kept_states.host_memory import is_copy
from gradtui.probe.kept_states.left_behind import LeftBehind
from gradtui.probe.kept_states.run_copy import MODEL, CopyDetails, RunCopy, size_of, tensors_of
from gradtui.probe.kept_states.safetensors_file import write_safetensors
from gradtui.probe.kept_states.store import KeptState, KeptStates
from gradtui.probe.kept_states.values import IncompleteCopyError

__all__ = [
    "BUFFERS",
    "MODEL",
    "Container",
    "CopyDetails",
    "CopyProgress",
    "FileContents",
    "HeldState",
    "IncompleteCopyError",
    "KeptState",
    "KeptStates",
    "LeftBehind",
    "RunCopy",
    "held_state",
    "is_copy",
    "items_of",
    "not_finite",
    "size_of",
    "tensors_of",
    "write_safetensors",
]
