"""The dashboard of a live run in web browsers: `gradtui --serve` and `gradtui attach --serve`.

A process of its own serves the page, and starts `gradtui attach` for each browser (`server.py`). So nothing of it runs in the
process that trains. The run starts that process before the script begins (`process.py`).
"""
