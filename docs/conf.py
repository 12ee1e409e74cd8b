"""The manual: Sphinx with MyST and furo. `.ci/docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gradtui.system.version import __version__

project = "gradtui"
copyright = "the authors of gradtui"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "manual_pages"]
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"gradtui {__version__}"
autodoc_typehints = "signature"
suppress_warnings = ["misc.highlighting_failure"]
