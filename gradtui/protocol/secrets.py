"""Hide passwords and tokens in the arguments of a script."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"

_NAME = (
    r"(?:[\w.+-]*[-_.+])?(?:hf|wandb|github|api|auth|access)?"
    r"(?:token|secret|password|passwd|passphrase|pwd|apikey|api[-_]?key|access[-_]?key|secret[-_]?key|private[-_]?key|credentials?|auth)"
)
_OPTION = re.compile(rf"--?{_NAME}$", re.IGNORECASE)
_ASSIGNED = re.compile(rf"(-{{0,2}}{_NAME}=)(.+)$", re.IGNORECASE | re.DOTALL)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
"""Tokens of Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS and Google, and JSON web tokens, by their documented prefixes."""
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
"""User and password in an address."""


def mask(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return arguments with `***` for the values of options named like a secret, and for tokens with a known prefix."""
    masked: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value and not argument.startswith("--"):
            masked.append(HIDDEN)
            is_value = False
            continue
        is_value = _OPTION.fullmatch(argument) is not None
        argument = _ASSIGNED.sub(rf"\1{HIDDEN}", argument)
        argument = _TOKEN.sub(HIDDEN, argument)
        masked.append(_IN_ADDRESS.sub(HIDDEN, argument))
    return tuple(masked)
