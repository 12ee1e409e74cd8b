"""Gradient norms and the sizes of updates: those that are shown, those of many parameters together, and what is usual."""
