"""Sentences that explain a row.

This package owns the words for states, gradients, optimizers, devices and non-finite values. Its modules are imported
individually; most modules are imported when a dialog opens.
"""
