"""Widgets that know nothing of a run: lines with roles in, strips out."""
