"""How many examples hypothesis tries: few and always the same, with `--hypothesis-profile nightly` many new ones."""

import hypothesis

FEW, MANY = 20, 1000
"""The examples of a cheap test in the profiles `ci` and `nightly`."""


def register_profiles() -> None:
    """Register both profiles, and load `ci`. On a busy machine an example takes many times as long: none has a deadline."""
    hypothesis.settings.register_profile("ci", max_examples=FEW, deadline=None, derandomize=True, database=None)
    hypothesis.settings.register_profile("nightly", max_examples=MANY, deadline=None)
    hypothesis.settings.load_profile("ci")


def examples(few: int) -> int:
    """Return the number of examples of a test that tries `few` by default: as many times more as the profile tries."""
    return hypothesis.settings.default.max_examples * few // FEW  # type: ignore[union-attr]
