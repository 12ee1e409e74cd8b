"""The screens and dialogs.

Its modules are imported by file: the first paint imports the dashboard only.
"""
