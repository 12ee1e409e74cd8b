"""Where a place in a file leads, in terminals that open links. UI thread."""

from __future__ import annotations

import os
from urllib.parse import unquote

from gradtui.system.file_links import file_address, opens_links


def address_of(place: str) -> str | None:
    """Return the address that a place of `rendering.linked` leads to.

    None if the terminal opens no links, or if there is no such file here: a recording and the run of another machine have the
    paths of that machine.
    """
    path, _, line = place.rpartition("#")
    file = unquote(path)
    if not opens_links(os.environ) or not os.path.isabs(file) or not os.path.isfile(file):
        return None
    return file_address(file, int(line))
