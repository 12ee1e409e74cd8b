"""From a key to a command.

This package owns what the user may ask for in which state of the run, the questions of dialogs, and the refusals that need no
training thread. Its modules are imported by file, those of dialogs when one opens.
"""
