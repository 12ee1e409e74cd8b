"""Getting the script to run: as `__main__`, under a supervising parent, with its output captured."""
