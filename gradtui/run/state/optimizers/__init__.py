"""The optimizers: their names, their param groups, and those that step in turns."""
