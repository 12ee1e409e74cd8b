"""GT804: the run continues from a saved training, and its random numbers do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtui.run.diagnostics.resumed import needs_loaded
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import file_name
from gradtui.run.text.units import listed


def check(state: RunState) -> Iterator[Match]:
    """Match a generator that is not where the loaded state leads."""
    for each in list(state.resume.resumed.values())[:1]:
        is_torch_lost = each.random_file is not None and each.random_draws is None
        lost = (*(["torch"] if is_torch_lost else []), *each.generators_lost)
        if not each.is_restored or not lost:
            continue
        file = file_name(each.random_file if is_torch_lost and each.random_file is not None else each.generators_file)
        yield Match(
            f"the random numbers do not continue: {file} has {_states(lost)} in the first step",
            {"saved_step": each.saved_step, "generators": ", ".join(lost)},
            (),
            each.step,
            is_exact=True,
            site=each.site,
            key=str(each.optimizer),
        )


def _states(names: Sequence[str]) -> str:
    if len(names) == 1:
        of = f"{names[0]}'s generator" if names[0] == "torch" else f"the generator of {names[0]}"
        return f"a state of {of}, and the generator does not follow it"
    return f"states of the generators of {listed(names)}, and they do not follow these"


RULE = Rule(
    "GT804",
    Level.WARNING,
    "the random state was not restored",
    "the order of the data and dropout differ from those of a run that was not interrupted; with the seed of the first run "
    "they are those of its beginning once more",
    'call torch.set_rng_state(checkpoint["rng"]), and its like for other generators, after models and data sets are made',
    check,
    needs=needs_loaded,
)
