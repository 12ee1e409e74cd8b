"""What is known about a run and what is said of it: its state, the events that make it, findings and sentences."""
