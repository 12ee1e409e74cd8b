"""Compare two runs. Pure: plain data in, plain data out.

This package owns what is compared, how, and the thresholds of `gradtui compare`. `export` writes a comparison in formats.
"""
