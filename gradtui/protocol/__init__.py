"""Events (what happened in a run) and commands (what the user asked for), as plain data. Standard library only."""
