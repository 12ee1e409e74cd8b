"""The views of the plots screen.

This package owns the contents of each view and the user's settings. Its modules are imported individually when the screen first
opens.
"""
