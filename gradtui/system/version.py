"""The version of gradtui: that of the tag from which the package was built."""

from __future__ import annotations

__version__: str
try:
    from gradtui.system.built_version import __version__
except ImportError:  # a source tree that was not built
    __version__ = "0.2.0.dev0"
