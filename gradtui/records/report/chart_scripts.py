"""The scripts that draw the charts in the page. They need the package of the extra `report`.

vl-convert-python has Vega, Vega-Lite and Vega-Embed in its wheel, and joins them to one script without a network.
"""

from __future__ import annotations

from typing import Any

from gradtui.system.optional_packages import install_words

_VEGA_LITE = "v6.1"
CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "gridColor": "var(--rule)",
        "gridOpacity": 0.6,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {"labelColor": "var(--text)", "labelFontSize": 12, "symbolSize": 90, "offset": 6, "labelLimit": 220},
    "text": {"color": "var(--text)"},
}


class MissingPackageError(Exception):
    """The package that draws charts is not installed. The message is one line."""


def chart_script() -> str:
    """Return the source of Vega-Embed, which assigns it to `window.vegaEmbed`.

    Raises:
        MissingPackageError: the package is not installed.
    """
    try:
        import vl_convert
    except ImportError:
        raise MissingPackageError(
            f"the charts of the page need the package vl-convert-python: {install_words('vl-convert-python', 'report')} "
            "(--format md needs no package)"
        ) from None
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _VEGA_LITE))
