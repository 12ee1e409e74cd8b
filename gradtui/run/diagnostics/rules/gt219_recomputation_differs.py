"""GT219: a checkpoint of the script does not recompute what forward did."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import needs_sample
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match regions that draw other random numbers, and modules whose buffers are written twice in a step."""
    found = state.evidence.recomputation
    if found is None:
        return
    if found.regions:
        layers = f" in {listed(sorted(found.random_modules))}" if found.random_modules else ""
        yield Match(
            f"the recomputation of {listed(sorted(found.regions))} draws other random numbers{layers} than forward did: "
            "preserve_rng_state is False",
            {"regions": len(found.regions), "random_modules": len(found.random_modules)},
            found.random_modules,
            is_exact=True,
            key="random",
        )
    if found.rewritten:
        is_one, are_norms = len(found.rewritten) == 1, found.norms == len(found.rewritten)
        does = "updates its running statistics" if is_one else "update their running statistics"
        writes = "writes its buffers" if is_one else "write their buffers"
        yield Match(
            f"{listed(sorted(found.rewritten))} {does if are_norms else writes} twice in each step, in forward and in the "
            "recomputation of a checkpoint",
            {"modules": len(found.rewritten), "norms": found.norms},
            found.rewritten,
            is_exact=True,
            level=Level.WARNING,
            remedy="leave such modules out of the checkpoint, as in checkpoint(block, norm(x))",
            key="buffers",
        )


RULE = Rule(
    "GT219",
    Level.ERROR,
    "a checkpoint does not recompute what forward did",
    "backward computes gradients of what it recomputes; if that differs from the forward behind the loss, they are wrong",
    "leave preserve_rng_state at True where something random runs in the checkpoint",
    check,
    needs=needs_sample,
)
