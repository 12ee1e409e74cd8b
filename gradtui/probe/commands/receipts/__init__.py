"""Receipts: what a change of the run has changed in memory and time."""
