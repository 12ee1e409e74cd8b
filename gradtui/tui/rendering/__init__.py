"""Text and colour for the terminal.

This package owns lines and their styles, the palette, the characters of markers, and sparklines.
"""

from gradtui.tui.rendering.lines import (
    BLANK,
    DetailRow,
    Line,
    Span,
    chunks,
    compact,
    cut,
    detail_lines,
    elide,
    elide_start,
    fit,
    in_columns,
    line_width,
    pad,
    pad_start,
    printable,
    sparkline,
    spread,
    text_rows,
    width_of,
    wrap,
)
from gradtui.tui.rendering.markers import MARKERS
from gradtui.tui.rendering.palette import (
    DARK_THEME,
    LEVEL_ROLES,
    LIGHT_THEME,
    STATE_ROLES,
    Palette,
    state_letter,
)

__all__ = [
    "BLANK",
    "DARK_THEME",
    "LEVEL_ROLES",
    "LIGHT_THEME",
    "MARKERS",
    "STATE_ROLES",
    "DetailRow",
    "Line",
    "Palette",
    "Span",
    "chunks",
    "compact",
    "cut",
    "detail_lines",
    "elide",
    "elide_start",
    "fit",
    "in_columns",
    "line_width",
    "pad",
    "pad_start",
    "printable",
    "sparkline",
    "spread",
    "state_letter",
    "text_rows",
    "width_of",
    "wrap",
]
