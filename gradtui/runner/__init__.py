"""Run the script as `__main__`, under a supervising parent process, with its output captured."""
