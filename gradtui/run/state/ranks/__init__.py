"""The ranks of a job side by side: their figures, their norms, the slow one, the one that failed first."""
