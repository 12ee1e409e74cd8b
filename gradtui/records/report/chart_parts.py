"""Parts of the charts of a report, as Vega-Lite specifications (https://vega.github.io/vega-lite/docs). Pure.

Names of the script occur in data only, never in expressions, names of fields or titles. Colours are variables of the page's
style sheet, so that the charts follow its light, dark and printed versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtui.dataclass import dataclass

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 190
Spec = dict[str, Any]
Steps = tuple[int, int]

_CURVES = 6
"""Number of colours of curves in the style sheet."""
_MIN_EXTENT = 36
"""Pixels for the numbers of a vertical axis: the steps of charts below each other are below each other."""
_TICKS = {"tickCount": {"expr": "clamp(floor(width / 70), 2, 10)"}}
IF_NEAREST = {"condition": {"param": "at", "empty": False, "value": 1}, "value": 0}
"""The opacity of points of which only the one next to the pointer is shown."""


@dataclass(frozen=True)
class Chart:
    """A chart of the page.

    Args:
        name: the id of its element.
        label: what it shows, for those who do not see it.
        spec: the Vega-Lite specification. Its data is in it.
        has_steps: its horizontal axis has steps, which the page's reader chooses with the parameters `first` and `last`.
        is_log: its vertical axis is logarithmic.
    """

    name: str
    label: str
    spec: Spec
    has_steps: bool = False
    is_log: bool = False


def over_steps(rows: list[dict[str, Any]], names: Sequence[str], steps: Steps) -> Spec:
    """Return lines over steps, and a point that follows the pointer and says its value."""
    several = len(names) > 1
    colour: Spec = {
        "field": "curve",
        "type": "nominal",
        "scale": {"domain": list(names), "range": [f"var(--curve-{1 + at % _CURVES})" for at in range(len(names))]},
        "legend": {"title": None, "orient": "top", "symbolType": "stroke"} if several else None,
    }
    words = tooltip(("step", "step"), *([("curve", "curve")] if several else []), ("text", "value"))
    y = {"field": "value", "type": "quantitative", "scale": {"zero": False, "nice": True}}
    return {
        **base(HEIGHT),
        "params": [{"name": "first", "value": steps[0]}, {"name": "last", "value": steps[1]}],
        "data": {"values": rows},
        "encoding": {
            "x": step_axis("step"),
            "y": y | {"axis": {"title": None, "tickCount": 5, "minExtent": _MIN_EXTENT}},
        },
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 1.6, "clip": True, "strokeJoin": "round"},
                "encoding": {"color": colour},
            },
            {
                "params": [nearest("x", "color")],
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
                "encoding": {"color": colour, "opacity": IF_NEAREST, "tooltip": words},
            },
        ],
    }


def nearest(*encodings: str) -> Spec:
    """Return the parameter that follows the pointer."""
    chosen = {
        "type": "point",
        "on": "pointerover",
        "nearest": True,
        "clear": "pointerout",
        "encodings": list(encodings),
    }
    return {"name": "at", "select": chosen}


def step_axis(field: str) -> Spec:
    """Return the horizontal axis of steps, which shows those that the reader has chosen."""
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domainMin": {"expr": "first"}, "domainMax": {"expr": "last"}, "nice": False, "zero": False},
        "axis": {"title": "step", "format": ",d", "tickMinStep": 1, "grid": False, **_TICKS},
    }


def base(height: int) -> Spec:
    """Return what all charts have: the width of the page."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def bytes_axis(unit: str) -> Spec:
    """Return an axis of bytes in a unit."""
    return {"field": "value", "type": "quantitative", "axis": {"title": unit, "tickCount": 6}}


def tooltip(*fields: tuple[str, str]) -> list[Spec]:
    """Return what is said of a point: fields with their titles."""
    return [
        {"field": field, "title": title, "type": "quantitative", "format": ",d"}
        if field == "step"
        else {"field": field, "title": title, "type": "nominal"}
        for field, title in fields
    ]
