"""Charts: from series of numbers to lines of text.

This package owns the plot server, its client, and the braille drawing that stands in for it. Its modules are imported by file,
because the plot server must not load Textual.
"""
