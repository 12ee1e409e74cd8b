"""The settings that files, environment variables and options give: what each allows, which source is in force, and the files.

It imports neither torch nor Textual.
"""
