"""The screens and dialogs.

This package owns the dashboard and the plots screen with their actions, the commands of the palette, and the dialogs. Its
modules are imported individually: the first paint imports the dashboard only.
"""
