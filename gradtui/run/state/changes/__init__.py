"""What is done to the run: what a toggle does, why a command is refused, what was done and came of it, branches of a run."""
