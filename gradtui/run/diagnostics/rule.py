"""What a rule is, and what it returns when it matches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gradtui.dataclass import dataclass
from gradtui.protocol.call_order import CallSite
from gradtui.run.state.findings import EvidenceValue, Level
from gradtui.run.state.run_state import RunState


@dataclass(frozen=True)
class Match:
    """One thing that a rule says is wrong with the run as it is now."""

    message: str
    """What is wrong, in one sentence with numbers and without a full stop."""
    evidence: Mapping[str, EvidenceValue]
    paths: tuple[str, ...] = ()
    first_step: int | None = None
    """The first step of which it is known; None: the present one."""
    is_exact: bool = False
    """The evidence is a count over all steps, or was compared exactly, and needs no further samples."""
    level: Level | None = None
    """Below the level of the rule in this case."""
    remedy: str | None = None
    """What to do in this case, if not what the rule says."""
    command: str | None = None
    """The words of the gradtui command that mends it."""
    call: str | None = None
    """The call whose line in the script is to be shown: a `CallSite.call`."""
    site: CallSite | None = None
    """The line to be shown, where it is that of one certain call."""
    key: str = ""
    """Distinguishes several matches of one rule."""
    optimizer: int | None = None
    """Index of the optimizer that it is about; None if of none alone."""
    explains: frozenset[str] | None = None
    """Ids of the rules whose matches follow from it in this case, if not those that the rule says."""


@dataclass(frozen=True)
class Rule:
    """A rule: a pure function over the state of a run, and what to say where it matches."""

    id: str
    """Permanent: `GT203`."""
    level: Level
    title: str
    """What is wrong, in general: a phrase without a full stop."""
    why: str
    """Why it is wrong, in one sentence."""
    remedy: str
    """What to do, in one sentence."""
    check: Callable[[RunState], Iterable[Match]]
    explains: frozenset[str] = frozenset()
    """Ids of the rules whose matches follow from this one."""
    needs: Callable[[RunState], str | None] = lambda _state: None
    """Returns what the run lacked, so that the rule had no chance to match: `no evaluation ran`. None if it had."""
    samples: int = 3
    """Number of sampled steps in which it must match to be confirmed, where its evidence is not exact."""
    is_default: bool = True
    """Whether it runs if nothing selects or ignores it."""
