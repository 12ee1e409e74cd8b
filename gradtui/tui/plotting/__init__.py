"""Numeric series to terminal text, for the panels that draw curves.

A panel gives a `request.PlotRequest` to `plotter.Plotter` and has a `request.Picture` at once. `sanitise` makes the series safe
and small. `plot_client` sends them to `plot_server`, a process of its own that draws with plotext; `braille` draws as long as
there is no picture from there. The package imports nothing itself, because the server imports it too and must start fast.
"""
