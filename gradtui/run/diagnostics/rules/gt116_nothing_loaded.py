"""GT116: load_state_dict matched no key, or left without values what was meant to get them."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.events import StateLoaded
from gradtui.run.diagnostics.parameters import are
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural
from gradtui.run.text.resume import file_name

_WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})
"""Names within keys that come from DataParallel and averages, torch.compile, FSDP, checkpointing wrappers, and Fabric."""
_MANY = 3
"""Tensors of a file that stayed behind for each one that was loaded: hardly on purpose."""


def check(state: RunState) -> Iterator[Match]:
    """Match loads that no other load has completed."""
    for each in state.script_calls.loads.values():
        if each.is_loaded:
            continue
        loaded = f"load_state_dict() of {each.module} loaded"
        if each.are_own:
            yield _match(
                each,
                f"load_state_dict() of {each.module} was given {plural(each.given, 'tensor')}, which all are its own: "
                "nothing was loaded",
                Level.WARNING,
                _remedy(each) or "look at the filter of the checkpoint's keys, which has left none of them",
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
                f"{loaded} none of {plural(each.expected, 'tensor')}: {given}",
                Level.ERROR if each.given else Level.WARNING,
                _remedy(each),
            )
        elif each.frozen_tensors and each.unexpected:
            yield _match(
                each,
                f"{plural(each.frozen_tensors, 'frozen tensor')} of {each.module} got no value from load_state_dict(), which "
                f"matched {each.matched:,} of {each.expected:,} keys, and dropped {each.unexpected[0]} and others",
                # What fits nothing may have its values from elsewhere.
                Level.WARNING if each.would_match else Level.NOTE,
                _remedy(each),
            )
        elif each.fitting and _are_meant(each):
            where = f"in {file_name(each.file)}" if each.file else "among the given keys"
            others = f"{each.would_match:,} of the others {are(range(each.would_match))}"
            yield _match(
                each,
                f"{loaded} {each.matched:,} of {plural(each.expected, 'tensor')}: {others} {where} under another name",
                Level.WARNING,
                _remedy(each),
            )
        elif each.other_shapes >= _MANY * each.matched:
            yield _match(
                each,
                f"{loaded} {each.matched:,} of {plural(each.expected, 'tensor')}: {file_name(each.file)} has "
                f"{each.other_shapes:,} of the others in other shapes",
                Level.WARNING,
                "build the model with the sizes that it had when the file was saved",
            )


def _are_meant(each: StateLoaded) -> bool:
    """Return whether the keys that would match were meant to: a wrapper has renamed them, or they are most of the model.

    A script that takes a part of a file on purpose leaves more behind than one that gives all keys to the call.
    """
    changed = {*each.given_prefix.split(".")} ^ {*each.expected_prefix.split(".")}
    return changed - {""} <= _WRAPPERS or each.would_match > (_MANY if each.file else 1) * each.matched


def _match(each: StateLoaded, message: str, level: Level, remedy: str | None) -> Match:
    evidence: dict[str, EvidenceValue] = {
        "given_keys": each.given, "matched_keys": each.matched, "expected_keys": each.expected,
        "would_match": each.would_match, "given_prefix": each.given_prefix, "expected_prefix": each.expected_prefix,
        "frozen_tensors": each.frozen_tensors, "other_shapes": each.other_shapes,
    }  # fmt: skip
    return Match(
        message,
        evidence,
        each.frozen or each.fitting if each.matched else each.frozen,
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
