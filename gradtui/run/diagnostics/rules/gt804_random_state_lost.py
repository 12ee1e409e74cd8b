"""GT804: the run continues from a saved training, and its random numbers do not."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.resumed import needs_loaded
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.resume import file_name


def check(state: RunState) -> Iterator[Match]:
    """Match a generator that is not where the loaded state leads."""
    for each in list(state.resume.resumed.values())[:1]:
        if not each.is_restored or each.random_file is None or each.random_draws is not None:
            continue
        file = file_name(each.random_file)
        yield Match(
            f"the random numbers do not continue: {file} has a state of torch's generator, and the generator does not follow "
            "it in the first step",
            {"saved_step": each.saved_step},
            (),
            each.step,
            is_exact=True,
            site=each.site,
            key=str(each.optimizer),
        )


RULE = Rule(
    "GT804",
    Level.WARNING,
    "the random state was not restored",
    "the order of the data and dropout differ from those of a run that was not interrupted; with the seed of the first run "
    "they are those of its beginning once more",
    'call torch.set_rng_state(checkpoint["rng"]) after the models and data sets are made',
    check,
    needs=needs_loaded,
)
