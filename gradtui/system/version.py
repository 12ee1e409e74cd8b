"""The version of gradtui: that of the tag from which the package was built."""

from __future__ import annotations

try:
    # Not by an import statement: mypy and import-linter would miss the module in a source tree that was not built.
    __version__: str = __import__("gradtui.system.built_version", fromlist=["__version__"]).__version__
except ImportError:  # a source tree that was not built
    __version__ = "0.2.0.dev0"
