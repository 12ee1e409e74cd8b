"""The schedule of a run: which commands take effect at which step, and what puts off the steps of a forecast."""
