"""Queues for events and commands between threads, and the tail of the log.

Besides events and commands the sampler thread reads the current phase and counters, and other threads may ask the UI thread
about the state (`UiThread.ask`).
"""
