"""The lines that explain a row, the memory of a device and that of a step.

The sentences are from `gradtui.run.text`. The modules are imported individually; most are imported when a dialog opens.
"""
