"""The plots screen's views.

This package owns what each view shows and how the user has set it. Its modules are imported by file when the
screen first opens.
"""
