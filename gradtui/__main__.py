"""`python -m gradtui` is the same as the command `gradtui`."""

from __future__ import annotations

import sys

from gradtui.cli import main

if __name__ == "__main__":
    sys.exit(main())
