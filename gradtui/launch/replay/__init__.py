"""Recordings without their run: as lines, in the dashboard with a position that can be moved, and the figures to compare."""
