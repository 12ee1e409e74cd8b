"""GT116: load_state_dict matched no key, or left a frozen part of the model without its values."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import StateLoaded
from gradtui.run.diagnostics.parameters import are
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match loads that no other load has completed."""
    for each in state.script_calls.loads.values():
        if each.is_loaded:
            continue
        if each.are_own:
            yield _match(
                each,
                f"load_state_dict() of {each.module} was given {plural(each.given, 'tensor')}, which all are its own: "
                "nothing was loaded",
                Level.WARNING,
                "look at the filter of the checkpoint's keys, which has left none of them",
            )
        elif not each.matched:
            given = (
                f"of {plural(each.given, 'given key')}, such as {each.unexpected[0]}, none is one of its keys, such as "
                f"{each.missing[0]}"
                if each.given
                else "it was given nothing"
            )
            yield _match(
                each,
                f"load_state_dict() of {each.module} loaded none of {plural(each.expected, 'tensor')}: {given}",
                Level.ERROR if each.given else Level.WARNING,
                _remedy(each),
            )
        elif each.frozen_tensors:
            yield _match(
                each,
                f"{plural(each.frozen_tensors, 'frozen tensor')} of {each.module} {are(range(each.frozen_tensors))} as "
                f"initialized: load_state_dict() matched {each.matched:,} of {each.expected:,} keys, and dropped "
                f"{each.unexpected[0]} and others",
                Level.WARNING,
                _remedy(each),
            )


def _match(each: StateLoaded, message: str, level: Level, remedy: str | None) -> Match:
    evidence: dict[str, EvidenceValue] = {
        "given_keys": each.given, "matched_keys": each.matched, "expected_keys": each.expected,
        "would_match": each.would_match, "given_prefix": each.given_prefix, "expected_prefix": each.expected_prefix,
        "frozen_tensors": each.frozen_tensors,
    }  # fmt: skip
    return Match(
        message,
        evidence,
        each.frozen,
        0,
        is_exact=True,
        level=level,
        remedy=remedy,
        site=each.site,
        key=str(each.number),
    )


def _remedy(each: StateLoaded) -> str | None:
    if not each.would_match:
        return None
    old, new = each.given_prefix, each.expected_prefix
    change = (
        f'replace "{old}" by "{new}" at the beginning of the keys'
        if old and new
        else f'remove "{old}" from the beginning of the keys'
        if old
        else f'put "{new}" before the keys'
    )
    return f"{change}: {plural(each.would_match, 'further tensor')} would be loaded"


RULE = Rule(
    "GT116",
    Level.ERROR,
    "a checkpoint is not loaded",
    "with strict=False load_state_dict() skips every key that the model does not have, and what it skips stays as initialized",
    "compare the keys of the checkpoint with those of the model, and look at what load_state_dict() returns",
    check,
)
