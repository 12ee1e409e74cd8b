"""Kept states of the run: copies, in host memory, of everything that makes the run at a step, and the way back to them.

A copy has the values of the script's objects and weak references to the objects themselves. A return writes the values into the
same objects, and then compares every one of them with the copy. Training thread only, at a step boundary.
"""

from gradtui.probe.kept_states.finite import BUFFERS, not_finite
from gradtui.probe.kept_states.run_copy import RunCopy, size_of
from gradtui.probe.kept_states.store import KeptState, KeptStates
from gradtui.probe.kept_states.values import IncompleteCopyError

__all__ = ["BUFFERS", "IncompleteCopyError", "KeptState", "KeptStates", "RunCopy", "not_finite", "size_of"]
