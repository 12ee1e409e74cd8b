"""What tests of several packages build and look at: runs, states, events, processes.

One idea in a file; each builder says what it returns. A file that is also a program says so in its docstring.
"""
