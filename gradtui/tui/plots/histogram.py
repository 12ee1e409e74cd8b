"""The histogram of the selected gradient: the share of its elements by magnitude, on a log10 axis. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from gradtui.dataclass import dataclass
from gradtui.protocol.measurements import BINS, LOWEST, GradientHistogram
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import number_text, plural, share_text
from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.request import PlotRequest, Scale, Series
from gradtui.tui.plots.curves import cursor_words
from gradtui.tui.plots.options import SELECTED_ROLE, Curve, Plot, PlotOptions
from gradtui.tui.plots.rows import why_empty, with_gradient
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import Line, Span, elide_start, fit, printable, wrap
from gradtui.tui.widgets import stacked_bar

EDGES = tuple((LOWEST + i) * log10(2) for i in range(BINS + 1))
"""The bin edges, in powers of ten."""

_SUBNORMAL = {"float16": -14}
"""The power of two below which a dtype loses digits."""
_BAR = 16
_MIN_BINS = 12


@dataclass(frozen=True)
class Spread:
    """The joint histogram of one step; a sampled element counts for all elements that it represents."""

    step: int
    tensors: int
    counts: tuple[float, ...]
    smaller: float
    larger: float
    zeros: float
    nan: float
    inf: float
    positive: float
    elements: int
    estimated: bool
    is_shard: bool


def spread_of(state: RunState, options: PlotOptions) -> Spread | None:
    """Return the newest histogram of the selected row; for a module, that of all its tensors sampled in that step."""
    selection = options.selection
    if selection is None:
        return None
    kept = [
        (step, histogram)
        for index, (step, histogram) in state.tree.histograms.items()
        if selection.first <= index < selection.last
    ]
    if not kept:
        return None
    newest = max(step for step, _ in kept)
    return _together(newest, [histogram for step, histogram in kept if step == newest])


def histogram_plot(state: RunState, options: PlotOptions, width: int, height: int) -> Plot:
    """Return the plot of the histogram."""
    spread = spread_of(state, options)
    if spread is None:
        return Plot(
            tuple(wrap(((why_empty(state, options.selection, "How its elements are spread"), "muted"),), width)), None
        )
    first, last = _shown(spread.counts)
    centres = tuple((EDGES[at] + EDGES[at + 1]) / 2 for at in range(first, last + 1))
    counts = spread.counts[first : last + 1]
    curve = Curve("elements", SELECTED_ROLE, centres, counts)
    above = (_reading(curve, spread, options, width) or _headline(state, spread, options, width),)
    below = _notes(state, spread, options, width)
    scale: Scale = "log" if options.other_scale else "linear"
    note = f"step {spread.step:,} · |g| by powers of ten · {scale}"
    request = _request(spread, scale, width, height - len(above) - len(below))
    return Plot(above, request, below, request.x_limits, note, (curve,))


def _reading(curve: Curve, spread: Spread, options: PlotOptions, width: int) -> Line | None:
    """Say how many elements are of the size at the cursor; None without a cursor."""
    if options.cursor is None:
        return None
    at = min(range(len(curve.steps)), key=lambda index: abs(curve.steps[index] - (options.cursor or 0.0)))
    half = log10(2) / 2
    low, high = (number_text(10 ** (curve.steps[at] + side * half)).strip() for side in (-1, 1))
    count = curve.values[at] or 0.0
    about = "≈" if spread.estimated else ""
    text = f"   {about}{share_text(count / max(1, spread.elements)).strip()} · {about}{plural(round(count), 'element')}"
    return fit((*cursor_words(f"|g| from {low} to {high}"), (text, "text")), width)


def histogram_table(state: RunState, options: PlotOptions) -> Table:
    """Return the bins with their numbers of elements; elements without a magnitude come first."""
    columns = ("bin", "abs_from", "abs_below", "elements")
    spread = spread_of(state, options)
    if spread is None:
        return Table(columns, ())
    without_size = (("zero", spread.zeros), ("nan", spread.nan), ("inf", spread.inf))
    rows: list[tuple[str, float | None, float | None, float]] = [
        (name, None, None, count) for name, count in without_size
    ]
    rows.append(("smaller", 0.0, 2.0**LOWEST, spread.smaller))
    rows += [
        (str(at + 1), 2.0 ** (LOWEST + at), 2.0 ** (LOWEST + at + 1), count) for at, count in enumerate(spread.counts)
    ]
    rows.append(("larger", 2.0 ** (LOWEST + BINS), None, spread.larger))
    return Table(columns, tuple(rows))


def _together(step: int, histograms: Sequence[GradientHistogram]) -> Spread:
    stands_for = [histogram.elements / histogram.seen for histogram in histograms]

    def total(counts: Sequence[int]) -> float:
        return sum(count * weight for count, weight in zip(counts, stands_for))

    return Spread(
        step=step,
        tensors=len(histograms),
        counts=tuple(total([histogram.counts[at] for histogram in histograms]) for at in range(BINS)),
        smaller=total([histogram.smaller for histogram in histograms]),
        larger=total([histogram.larger for histogram in histograms]),
        zeros=total([histogram.zeros for histogram in histograms]),
        nan=total([histogram.nan for histogram in histograms]),
        inf=total([histogram.inf for histogram in histograms]),
        positive=total([histogram.positive for histogram in histograms]),
        elements=sum(histogram.elements for histogram in histograms),
        estimated=any(histogram.estimated for histogram in histograms),
        is_shard=any(histogram.is_shard for histogram in histograms),
    )


def _request(spread: Spread, scale: Scale, width: int, height: int) -> PlotRequest:
    first, last = _shown(spread.counts)
    shares = [100 * count / spread.elements for count in spread.counts[first : last + 1]]
    # A log scale has no position for an empty bin, so bars start at half of the smallest share.
    floor = min((share for share in shares if share > 0), default=1.0) / 2 if scale == "log" else 0.0
    columns = 2 * max(1, width - LABEL_WIDTH - 1)
    low, high = EDGES[first], EDGES[last + 1]
    xs: list[float] = []
    ys: list[float] = []
    # A stroke up and down in each dot column fills the bars.
    for dot in range(columns):
        x = low + (high - low) * (dot + 0.5) / columns
        share = shares[min(len(shares) - 1, int((x - low) / (high - low) * len(shares)))]
        xs += [x, x]
        ys += [floor, max(floor, share)]
    series = Series("", SELECTED_ROLE, tuple(xs), tuple(ys))
    return PlotRequest(
        width,
        height,
        (series,),
        y_scale=scale,
        x_label="log |g|",
        y_label="% of elements",
        from_zero=scale == "linear",
        x_limits=(low, high),
    )


def _shown(counts: Sequence[float]) -> tuple[int, int]:
    """Return the first and the last bin to show: those with elements and one more on each side, at least `_MIN_BINS`."""
    filled = [at for at, count in enumerate(counts) if count]
    first, last = (filled[0] - 1, filled[-1] + 1) if filled else (BINS // 2, BINS // 2)
    missing = max(0, _MIN_BINS - (last - first + 1))
    first = max(0, min(first - missing // 2, BINS - _MIN_BINS))
    return first, min(BINS - 1, max(last + missing // 2, first + _MIN_BINS - 1))


def _headline(state: RunState, spread: Spread, options: PlotOptions, width: int) -> Line:
    count = plural(spread.elements, "element")
    whole = len(with_gradient(state.tree, options.selection)) if options.selection is not None else 0
    words = [f"{spread.tensors:,} of {whole:,} tensors"] if spread.tensors < whole else []
    words += [f"{spread.tensors:,} tensors"] if 1 < spread.tensors >= whole else []
    words += [f"{count}, estimated" if spread.estimated else count]
    words += ["this process' shard"] if spread.is_shard else []
    text = " · ".join(words)
    name = printable(options.selection.name) if options.selection is not None else ""
    room = max(8, width - len(text) - 6)
    return fit((("▇▇ ", SELECTED_ROLE), (elide_start(name, room), "strong"), (f"   {text}", "muted")), width)


def _notes(state: RunState, spread: Spread, options: PlotOptions, width: int) -> tuple[Line, ...]:
    whole, about = max(1, spread.elements), "≈" if spread.estimated else ""

    def share(count: float) -> str:
        text = share_text(count / whole).strip() if count else "none"
        return text if text.startswith(("<", "none")) else about + text

    zero = spread.zeros / whole
    spans: list[Span] = [("exactly zero ", "muted"), (share(spread.zeros), "text"), ("  ", "")]
    spans += [*stacked_bar([("curve-3", zero), ("rule", 1.0 - zero)], 1.0, _BAR)]
    spans += [("  positive ", "muted"), (share(spread.positive), "text")]
    bad = [(name, count) for name, count in (("NaN", spread.nan), ("Inf", spread.inf)) if count]
    for name, count in bad:
        spans += [("  ", ""), (f"{name} {share(count)}", "error")]
    lines = [fit(tuple(spans), width)]
    beyond = []
    if spread.smaller:
        beyond.append(f"{share(spread.smaller)} is not zero but below {2.0**LOWEST:.1e}")
    if spread.larger:
        beyond.append(f"{share(spread.larger)} is above {2.0 ** (LOWEST + BINS):g}")
    beyond += _subnormal(state, spread, options)
    if beyond:
        lines += [fit(line, width) for line in wrap((("; ".join(beyond), "warning"),), width)[:2]]
    return tuple(lines)


def _subnormal(state: RunState, spread: Spread, options: PlotOptions) -> list[str]:
    selection = options.selection
    if selection is None or selection.last - selection.first != 1:
        return []
    dtype = state.tree.parameters[selection.first].dtype
    begins = _SUBNORMAL.get(dtype)
    if begins is None:
        return []
    below = spread.smaller + sum(spread.counts[: begins - LOWEST])
    text = share_text(below / max(1, spread.elements)).strip()
    return [f"{text} is below {2.0**begins:.1e}, where {dtype} loses digits"] if below else []
