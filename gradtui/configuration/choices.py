"""What settings may be, and what they are by default. Without other imports, as `gradtui --help` needs them."""

from __future__ import annotations

DEFAULT_SHARE = 0.01
"""Default share of the time that measuring may take."""

DEFAULT_REFRESH = 4.0
"""Default of how often per second the dashboard redraws what has changed."""

THEMES = (
    "gradtui-dark", "gradtui-light", "textual-dark", "textual-light", "nord", "gruvbox", "catppuccin-mocha", "dracula",
    "tokyo-night", "monokai", "flexoki", "catppuccin-latte", "catppuccin-frappe", "catppuccin-macchiato", "solarized-light",
    "solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn", "atom-one-dark", "atom-one-light", "ansi-dark",
    "ansi-light",
)  # fmt: skip
"""The themes of the dashboard, the default first: gradtui's own, then Textual's. They are listed here, because the command line
is checked before Textual is imported."""

COLUMNS = ("count", "norm", "ratio", "spark", "bytes", "saved", "time", "shape", "dtype", "trainable", "lr", "ranks")
"""The columns that the tree may have."""

ORDERS = ("execution", "registration")
"""The orders that the modules of the tree may have, the default first."""

USAGE_ERROR = 2
"""Exit code for a bad command line, the same as that of python and click."""

FINDINGS_EXIT_CODE = 3
"""Exit code of `gradtui check` if a confirmed finding reaches the level of `--fail-on`."""

DEFAULT_RECORD_LIMIT = 1 << 30
"""Bytes of a recording, before older measurements are thinned out."""
