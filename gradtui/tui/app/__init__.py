"""The Textual application.

This package owns the application, the messages about events, the schedule of redraws, and the queue of keys.
"""
