"""How far backward runs: the freeze frontier, and what keeps backward out of the modules before it."""
