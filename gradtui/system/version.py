"""The version of gradtui."""

__version__ = "0.1.0"
