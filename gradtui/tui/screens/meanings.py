"""What every letter, mark and colour of the screen means, for the help. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gradtui.dataclass import dataclass
from gradtui.protocol.vocabulary import ParameterState
from gradtui.run.state.over_steps.loss_trend import COMPARED
from gradtui.run.state.over_steps.markers import MarkerKind
from gradtui.run.text import (
    BEFORE_TRAINING,
    MEMORY_PARTS,
    STATE_MEANINGS,
    STATE_SUMMARIES,
    STATE_WORDS,
    memory_part_name,
)
from gradtui.tui.panels import KINDS, SHOWN
from gradtui.tui.rendering import MARKERS, STATE_ROLES, Line, state_letter
from gradtui.tui.tree import (
    ALL_COLUMNS,
    AT_LEAST,
    CONCERNED,
    DIFFERS,
    FREEZE,
    HIDDEN,
    MIXED,
    NEVER,
    PARTLY,
    PASSES,
    PASSING,
    RECOMPUTED,
    STOPS,
    STOPS_TRAINS,
    TIED,
    TRAINS,
    UNFREEZE,
    column_words,
)
from gradtui.tui.widgets import FULL


@dataclass(frozen=True)
class Meaning:
    """What a sign or a word of the screen means."""

    sign: Line
    brief: str
    """In few words."""
    text: str = ""
    """In sentences, if there is more to say."""


@dataclass(frozen=True)
class Meanings:
    """Meanings under one heading."""

    heading: str
    entries: tuple[Meaning, ...]
    columns: int = 1
    """In how many columns they fit on a screen of 80 cells."""
    is_overview: bool = True
    """Whether they are part of the overview; others are found by a search."""

    @property
    def sign_width(self) -> int:
        """The cells of the widest sign."""
        return max(sum(len(part) for part, _ in entry.sign) for entry in self.entries)


_RAIL: tuple[tuple[str, str, str], ...] = (
    (TRAINS, "the gradient comes; it trains", "The gradient comes here from the loss, and parameters here train."),
    (PASSES, "the gradient only passes", "The gradient only passes: it is computed for what is above."),
    (
        f"{STOPS_TRAINS} {STOPS}",
        "backward stops here",
        "Backward stops here: nothing before this needs a gradient, or what is before is detached or under no_grad.",
    ),
    (PARTLY, "it comes to a part of it", "The gradient comes to a part of what is in here."),
    (
        HIDDEN,
        "unknown (compiled code)",
        "Unknown: one operation stands for several modules (compiled, or a reentrant checkpoint).",
    ),
    (NEVER, "it never comes here", "Backward never comes here. No gradient is stored, and nothing is kept for it."),
)

_MARKS: tuple[tuple[str, str, str, str], ...] = (
    (FREEZE, "pending", "a freeze at the next step", "A freeze, pending until the next step boundary."),
    (UNFREEZE, "pending", "an unfreeze at the next step", "An unfreeze, pending until the next step boundary."),
    (MIXED, "pending", "both, on rows inside", "Freezes and unfreezes are pending on different rows below."),
    (f"{TIED}2", "accent", "tied: one tensor, two names", "One tensor under two names (tied); it counts once."),
    (
        CONCERNED,
        "error",
        "an open finding concerns it",
        'In the first cell of a row: an open finding concerns the row, or one folded up in it. "Next problem" goes there.',
    ),
    (
        PASSING,
        "muted",
        "the norm of what only passes",
        "Before a norm: of the gradient that only passes through a frozen module, read in sampled steps on the CPU.",
    ),
    (
        f"{AT_LEAST}≤≈",
        "muted",
        "at least, at most, about",
        "Before a figure: what it says of the true one. ≥ before a norm: of the part that the shown process has of sharded "
        "parameters; the viewer of a job combines the parts once all ranks have measured the same step. ≥ before a peak: it "
        "was not measured all the time. ≤ before a peak: the sum of the peaks of several CUDA devices, which may have reached "
        "theirs at different times. ≈ before a peak: such a sum, and an unmeasured one may be higher. ≤ before a learning "
        "rate: the highest of several.",
    ),
    (
        DIFFERS,
        "warning",
        "another norm on other ranks",
        "Before a norm: it differs between ranks, by more than rounding. Ranks average the gradients of what "
        "DistributedDataParallel keeps equal, and then norms are equal too. The column ranks says how much.",
    ),
    (
        RECOMPUTED,
        "activations",
        "checkpointed: computed again",
        "Checkpointed: backward computes again what autograd does not keep there.",
    ),
    (
        "▲",
        "warning",
        "peak, or spike",
        "The highest total of a phase so far, where it is not its newest one. Over the curves of the memory and in the panel: "
        "a spike, a step whose peak is far above those around it.",
    ),
    (
        "–",
        "muted",
        "not known, never a zero",
        f"Not known, or not there; never a zero. Of a parameter: {STATE_MEANINGS[ParameterState.UNKNOWN]}",
    ),
    (
        SHOWN,
        "accent",
        "the rank that is shown",
        "In the table of ranks: the tree, the curves and the memory are those of this rank. enter shows another one.",
    ),
)

_OF_VALUES = (
    Meaning((("×", "error"),), "NaN or Inf"),
    Meaning(
        (("⠶", "curve-1"),),
        "lone step",
        "Its neighbours were not measured, or are no longer kept. Lines join neighbouring steps only.",
    ),
)

# A spike of the memory is among the marks.
_MARKERS: dict[MarkerKind, str] = {
    MarkerKind.MODEL: "The run has a new model. A curve breaks where none of its models had trained before.",
    MarkerKind.UNFREEZE: "Parameters were unfrozen.",
    MarkerKind.FREEZE: "Parameters were frozen.",
    MarkerKind.LEARNING_RATE: (
        "A command changed a learning rate, or it jumped by half or more. Schedules that move it all the time are not marked."
    ),
    MarkerKind.CHECKPOINTING: "A command turned activation checkpointing on or off.",
    MarkerKind.CHANGE: "Another change of the user: a mode, weight decay, a skipped step.",
    MarkerKind.FINDING: "The first step of a confirmed finding.",
}

_CATEGORIES: dict[str, tuple[str, str]] = {
    "parameters": ("what the model's parameters take", ""),
    "buffers": ("running statistics and other buffers", ""),
    "gradients": ("what .grad holds", ""),
    "buckets": (
        "the copy of the gradients that ranks average",
        "The copy of the gradients in which DistributedDataParallel averages them. With gradient_as_bucket_view=True there is "
        "none: .grad is part of the buckets then.",
    ),
    "optimizer_state": ("momentum, Adam's averages and the like", ""),
    "activations": ("what autograd keeps for backward", ""),
    "input": (
        "batches: what a model was given or a DataLoader gave",
        "Batches: what a model or a DataLoader was given or gave, unless autograd keeps it too.",
    ),
    "offloaded": (
        "saved on the host for backward",
        "Saved on the host for backward; for models on a device also their tensors on the host, beside the total.",
    ),
    "other": (
        "measured, but none of the above: temporary results",
        "Measured, but none of the above: temporary results, buffers that libraries (MKL, oneDNN) keep from the first step on, "
        "fragmentation; activations while they are unknown.",
    ),
    BEFORE_TRAINING: (
        "Python, libraries and data before the first forward",
        "In no category at the first forward: Python, libraries, data. Left out of curve and bar.",
    ),
}

_STEP_WORDS: tuple[tuple[str, str], ...] = (
    (
        "curve within a step",
        "the total after each allocation and free of one step, in their order, less what was there before",
    ),
    ("per cent", "the share of the phase in the time of a step, which is also its width on the curve"),
    ("▲", "where the total is highest: the phase, and the module whose operation allocated last"),
    ("cuda:1*", "of several devices, the one of which the largest share is in use"),
    (
        "step",
        'the step of the figures; "Profile a step\'s memory" profiles the next one, and others follow as the budget allows',
    ),
)

_COLUMN_WORDS: tuple[tuple[str, str], ...] = (
    ("state, st", "the state of the parameter, or all states there are in the module"),
    *map(column_words, ALL_COLUMNS),
    (
        "a dim value",
        "from before the last change, or from more than two seconds of training ago; its step stands beside it, in the lower "
        "edge of the tree, or in the explanation of the selected row",
    ),
)

_FINDING_WORDS: tuple[tuple[str, str], ...] = (
    ("error", "the run does not do what its script asks for"),
    ("warning", "something is very likely not as intended"),
    ("note", "it may be intended, and is worth knowing"),
    ("open", "the numbers confirm it, and it is still so"),
    ("suspected", "it needs more samples; it is only in the list of findings"),
    ("cleared", "it was so, and no longer is"),
)

_HEADER_WORDS: tuple[tuple[str, str], ...] = (
    (
        "step · micro",
        "executed steps of all optimizers together, and backward passes where these are not as many; the dialog at the end of "
        "the run has the steps of each optimizer",
    ),
    (
        "loss",
        "the newest loss. Losses of different optimizers are not comparable: where several step in turns, as in a GAN, it is "
        "that of the main one, the first that steps, with its name where there is room. Another one takes its place when the "
        "main one no longer steps. Of a step with several backward passes it is their mean, or their sum where the script "
        "divides each loss by their number",
    ),
    (
        "falling, rising, flat",
        f"the newer half of the last {COMPARED} losses against the older half; flat is a difference that chance explains "
        "(a Mann-Whitney test at 1 %: an estimate, because it takes losses as independent)",
    ),
    ("until", "the next step at which training pauses: a breakpoint, or the one to which it runs"),
    (
        "memory, peak",
        "what is allocated now, and the most that was allocated at once since the newest change: that of the profiled step, "
        "unless another step was clearly higher. The memory panel says in which phase of which step, and what held it. Its "
        "axis is dashed at its lower end (┊) where it does not begin at zero",
    ),
    (
        "overhead",
        "host time of gradtui's hooks (in part an estimate), or device time where that is longer, and of this screen, which "
        "draws less often to stay within its budget: its share of the time of a step lately. Once the run has ended it is the "
        "share of the hooks in the whole run",
    ),
)


def _by_words(heading: str, words: Iterable[tuple[str, str]]) -> Meanings:
    entries = tuple(Meaning(((word, "text"),), meaning) for word, meaning in words)
    return Meanings(heading, entries, is_overview=False)


MEANINGS: tuple[Meanings, ...] = (
    Meanings(
        "States: letter and word",
        tuple(
            Meaning(
                (state_letter(state.value), (f" {STATE_WORDS[state]}", STATE_ROLES[state.value])),
                STATE_SUMMARIES[state],
                STATE_MEANINGS[state],
            )
            for state in ParameterState
            if state is not ParameterState.UNKNOWN
        ),
    ),
    Meanings(
        "The line left of the names",
        tuple(Meaning(((mark, "gradients"),), brief, text) for mark, brief, text in _RAIL),
        columns=2,
    ),
    Meanings("Marks", tuple(Meaning(((mark, role),), brief, text) for mark, role, brief, text in _MARKS), columns=2),
    Meanings(
        "Markers of the curves",
        (*(Meaning((MARKERS[kind],), str(kind), text) for kind, text in _MARKERS.items()), *_OF_VALUES),
        columns=3,
    ),
    Meanings(
        "Memory",
        tuple(
            Meaning(((f"{FULL} ", part), (memory_part_name(part), "text")), *_CATEGORIES[part]) for part in MEMORY_PARTS
        ),
    ),
    _by_words("Columns", _COLUMN_WORDS),
    _by_words("Memory within a step", _STEP_WORDS),
    _by_words("Findings", _FINDING_WORDS),
    Meanings(
        "Events",
        tuple(Meaning(((glyph, role), (f" {kind}", "text")), text) for glyph, role, kind, text in KINDS.values()),
        is_overview=False,
    ),
    _by_words("Header", _HEADER_WORDS),
)
"""All meanings, those of the overview first."""
