"""The version of gradtui: that of the tag from which the package was built."""

from __future__ import annotations

from importlib import import_module

try:
    __version__: str = import_module("gradtui.system.built_version").__version__
except ImportError:  # a source tree that was not built
    __version__ = "0.2.0.dev0"
