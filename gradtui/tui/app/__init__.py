"""The Textual application.

This package owns the application, its dialogs, its reactions to actions, and the schedule of redraws.
"""
