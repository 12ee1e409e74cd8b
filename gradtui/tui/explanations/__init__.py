"""Sentences that explain a row.

This package owns the words for states, gradients, optimizers, devices and non-finite values. Its modules are imported by file,
most of them when a dialog opens.
"""
