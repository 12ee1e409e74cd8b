"""Makes commands from keys.

This package owns what the user may request in which state of the run, the questions of dialogs, and the refusals that do not
need the training thread. Its modules are imported individually; those of dialogs are imported when a dialog opens.
"""
