"""The command line: the run of a script, the subcommands, and the options that several of them have. It imports no torch."""
