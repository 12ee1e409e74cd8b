"""Run the script as `__main__`, under a supervising parent process, with its output captured.

When the user kills the run, the training process asks the supervisor to send it SIGTERM, and SIGKILL 5 seconds later. No key
works while a C call holds the GIL. When the screen is closed, by the user or by a failure, the plain reporter takes over the
state, and training continues. A read of the script from the keyboard closes the screen until it returns (`script_input.py`,
`terminal_loan.py`).
"""
