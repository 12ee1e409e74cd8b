"""Live runs that other processes can ask: where a run listens, and what is said over a connection.

Processes of the same user on the same machine use a Unix socket, others TCP with a token. This package owns the directory of
the sockets, the addresses, the server of a run, and its clients. It knows neither torch nor a screen.
"""
