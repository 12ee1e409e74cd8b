"""How events and commands travel between threads."""
