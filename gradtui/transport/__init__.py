"""Queues for events and commands between threads, and the tail of the log."""
