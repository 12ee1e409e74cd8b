"""The screens and dialogs.

Importers name each module: the first paint imports the dashboard only.
"""
