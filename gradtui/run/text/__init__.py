"""Sentences and units that several parts use: the screen, `--plain`, the files and the answers to commands.

It reads the state and its explanations. Import a sentence from the module that makes it: `units.py` has the numbers.
"""
