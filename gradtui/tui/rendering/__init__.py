"""Text and colour for the terminal.

This package owns lines and their styles, the palette, number formats, sparklines and the sizes of the panels.
"""

from gradtui.text import BYTES_WIDTH, DASH, bytes_text, short_bytes
from gradtui.tui.rendering import formatting
from gradtui.tui.rendering.detail_rows import DetailRow, detail_lines, text_rows
from gradtui.tui.rendering.formatting import (
    NORM_WIDTH,
    RATE_WIDTH,
    VALUE_WIDTH,
    count_text,
    dtype_text,
    microseconds_text,
    norm_text,
    rate_text,
    seconds_text,
    shape_text,
    share_text,
    steps_text,
    value_text,
)
from gradtui.tui.rendering.lines import (
    BLANK,
    Line,
    Span,
    chunks,
    compact,
    elide,
    elide_start,
    fit,
    in_columns,
    line_width,
    pad,
    pad_start,
    printable,
    spread,
    width_of,
    wrap,
)
from gradtui.tui.rendering.palette import DARK_THEME, LIGHT_THEME, Palette, state_letter
from gradtui.tui.rendering.proportions import is_wide, output_columns
from gradtui.tui.rendering.sparkline import sparkline
from gradtui.tui.rendering.state_help import MEANINGS, why_so

__all__ = [
    "BLANK",
    "BYTES_WIDTH",
    "DARK_THEME",
    "DASH",
    "LIGHT_THEME",
    "MEANINGS",
    "NORM_WIDTH",
    "RATE_WIDTH",
    "VALUE_WIDTH",
    "DetailRow",
    "Line",
    "Palette",
    "Span",
    "bytes_text",
    "chunks",
    "compact",
    "count_text",
    "detail_lines",
    "dtype_text",
    "elide",
    "elide_start",
    "fit",
    "formatting",
    "in_columns",
    "is_wide",
    "line_width",
    "microseconds_text",
    "norm_text",
    "output_columns",
    "pad",
    "pad_start",
    "printable",
    "rate_text",
    "seconds_text",
    "shape_text",
    "share_text",
    "short_bytes",
    "sparkline",
    "spread",
    "state_letter",
    "steps_text",
    "text_rows",
    "value_text",
    "why_so",
    "width_of",
    "wrap",
]
