"""The dashboard: the only package that imports Textual, Rich or plotext."""
