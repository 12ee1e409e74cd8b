"""The kept states of the run, and the returns to them: by command, before a change, at the best metric, and after a fault."""
