"""Hide passwords and tokens in the arguments of a script, for all that leaves the process: files, answers, lines, the screen.

A value is a secret by the name before it (`--api-key X`, `TOKEN=X`, `"password": "X"`), by its documented prefix (`hf_`), or by
its place in an address. A secret that nothing names (`-k X`) cannot be told from other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"

_SECRETS = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
)
"""A name whose last word ends with one of these has a secret: `--hf-token`, `DBPASSWORD`."""
_WHOLE = {
    "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "key", "oauth", "pass", "passwords",
    "sas", "secrets", "sig", "signature", "webhook",
}  # fmt: skip
"""Last words that name a secret only as they stand; a `key` and a `pass` only alone or behind one of the words below."""
_QUALIFIED = {"key", "keys", "pass", "pat", "tokens", "url"}
_QUALIFIERS = {
    "access", "account", "admin", "anthropic", "api", "app", "auth", "aws", "azure", "bearer", "client", "comet", "cohere",
    "db", "decryption", "deploy", "encryption", "gcp", "gemini", "github", "gitlab", "google", "groq", "hf", "http",
    "huggingface", "license", "master", "mistral", "mysql", "neptune", "openai", "pg", "postgres", "private", "proxy", "redis",
    "secret", "service", "session", "shared", "signing", "smtp", "ssh", "storage", "subscription", "user", "wandb", "webhook",
}  # fmt: skip
_SEVERAL = {"keys", "tokens", "passwords", "secrets", "credentials", "cookies"}
"""After an option with one of these last words, all words up to the next option are values."""
_TO_THE_END_OF_LINE = {"authorization", "cookie", "cookies"}
"""Headers of HTTP: what follows has spaces and semicolons."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPTION = re.compile(r"--[A-Za-z][\w.+/-]*(?:=.*)?", re.DOTALL)
_BARE_NAME = re.compile(r"[A-Za-z]\w*(?:[._]\w+)+")
_ASSIGNED = re.compile(r"([-+~]{0,2}[A-Za-z_][\w.+/@-]*=)(.+)", re.DOTALL)
_PAIR = re.compile(r"(?<![\w.+-])-{0,2}([A-Za-z_][\w.+-]*)\\?[\"']?\s*([=:])(?!//)(\s*)")
"""A name and its sign in a longer text: an assignment, a query, a header, JSON."""
_QUOTED = re.compile(r'\\"(?:(?!\\").)*|"(?:[^"\\]|\\.)*|\'[^\']*|\[[^\]]*|\{[^}]*', re.DOTALL)
_PLAIN = re.compile(r"[^\s,;&\"'})\]]+")
_AFTER_SPACE = re.compile(r"[^,;})\]\"'\r\n]+")
_LINE = re.compile(r"[^\"'\r\n]+")
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_\w{16,}|gsk_\w{16,}|r8_\w{16,}"
    r"|nvapi-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl(?:pat|rt|dt)-[\w-]{16,}|npm_\w{16,}|pypi-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
    r"|(?<=hooks\.slack\.com/)\S+|(?<=/api/webhooks/)\S+|(?<=Bearer )\S+|(?<=bearer )\S+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
"""Tokens by their documented prefixes (Hugging Face, OpenAI, Stripe, Groq, NVIDIA, GitHub, GitLab, npm, PyPI, Slack, AWS,
Google, SendGrid), JSON web tokens, what follows `Bearer`, the addresses of webhooks, and private keys."""
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s?#\"']+(?=@)")
"""User and password in an address."""
_LEAST = 6
"""Characters of a secret that is hidden wherever it appears: shorter ones are parts of other words."""


def mask(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return arguments with `***` in place of secrets."""
    masked: list[str] = []
    name = ""
    """The option whose value is due."""
    for argument in arguments:
        if name and _OPTION.fullmatch(argument) is None:
            masked.append(HIDDEN)
            name = name if _words(name)[-1] in _SEVERAL else ""
            continue
        is_name = re.fullmatch(r"--?[A-Za-z][\w.+/-]*", argument) or _BARE_NAME.fullmatch(argument)
        name = argument if is_name and _names_secret(argument) else ""
        masked.append(_masked(argument))
    return tuple(masked)


def without_secrets(text: str, arguments: Iterable[str]) -> str:
    """Return a text without the secrets that are in arguments, wherever they appear in it."""
    arguments, secrets = tuple(arguments), set[str]()
    for given, shown in zip(arguments, mask(arguments), strict=True):
        begin, hidden, end = shown.partition(HIDDEN)
        secret = given[len(begin) : len(given) - len(end)]
        if hidden and HIDDEN not in end and len(secret) >= _LEAST:
            secrets.add(secret)
    # One may be a part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _masked(argument: str) -> str:
    assigned = _ASSIGNED.fullmatch(argument)
    if assigned is not None and _names_secret(assigned[1]):
        return assigned[1] + HIDDEN
    argument = _IN_ADDRESS.sub(HIDDEN, _TOKEN.sub(HIDDEN, argument))
    parts: list[str] = []
    position = 0
    while (pair := _PAIR.search(argument, position)) is not None:
        parts.append(argument[position : pair.end()])
        position = pair.end()
        value = _value(pair, argument) if _names_secret(pair[1]) else None
        if value is not None:
            opening = re.match(r"\\?[\"']|", value[0])
            parts += [opening[0] if opening is not None else "", HIDDEN]
            position = value.end()
    return "".join((*parts, argument[position:]))


def _value(pair: re.Match[str], text: str) -> re.Match[str] | None:
    """Return what follows a name and its sign."""
    if _words(pair[1])[-1] in _TO_THE_END_OF_LINE:
        return _LINE.match(text, pair.end()) or _QUOTED.match(text, pair.end())
    plain = _AFTER_SPACE if pair[2] == ":" and pair[3] else _PLAIN
    return _QUOTED.match(text, pair.end()) or plain.match(text, pair.end())


def _names_secret(name: str) -> bool:
    words = _words(name)
    if not words:
        return False
    *others, last = words
    if last in _QUALIFIED and others:
        return others[-1] in _QUALIFIERS
    return last in _WHOLE or last.endswith(_SECRETS)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]
