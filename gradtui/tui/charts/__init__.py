"""Charts: from series of numbers to lines of text.

This package owns the plot server, its client, and the braille drawing for charts without a picture of the server. Its modules
are imported individually, because the plot server must not load Textual.
"""
