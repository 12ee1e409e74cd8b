"""The vocabulary of the project: what happened (events) and what the person asked for (commands). Standard library only."""
