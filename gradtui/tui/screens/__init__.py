"""The screens and dialogs.

Its modules are imported individually: the first paint imports the dashboard only.
"""
