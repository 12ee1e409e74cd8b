"""What is known about a run: pure data, built from events alone."""
