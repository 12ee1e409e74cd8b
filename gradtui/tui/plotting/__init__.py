"""Numeric series to terminal text, for the panels that draw curves.

`plotter.Plotter` is what a panel uses: a `request.PlotRequest` goes in, a `request.Picture` comes out at once. On the
way the series are made safe and small (`sanitise`), drawn by plotext in a process of its own (`plot_process`,
`plotext_child`), and by our own braille drawing (`braille`) as long as there is no picture from there. Nothing here is
imported by the package itself, because the child process imports it too and must start fast.
"""
