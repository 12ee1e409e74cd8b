"""The dashboard of a live run for one browser: a process that speaks with the page's server on stdin and stdout.

The server sets `TEXTUAL_DRIVER`, by which Textual draws for a page (`textual.drivers.web_driver`).
"""

from __future__ import annotations

from gradtui.configuration.in_force import Configuration
from gradtui.launch.attach_screen import AttachedRun, app_of
from gradtui.remote.serving.addresses import Address

VIEWER = "GRADTUI_PAGE_VIEWER"
"""The variable that makes `gradtui attach` the viewer of a page."""


def attach_for_page(address: Address, settings: Configuration) -> None:
    """Show the dashboard of a run until the browser leaves.

    Raises:
        NoAnswerError: the run does not answer.
    """
    run = AttachedRun(address)
    run.start()
    try:
        app_of(run, settings).run()
    finally:
        run.close()
