"""Hide passwords and tokens in the arguments of a script, for all that leaves the process: files, answers, lines, the screen.

A value is a secret by the name before it (`--api-key X`, `TOKEN=X`, `"password": "X"`), by its documented prefix (`hf_`), or by
its place in an address. Behind a name that has other meanings too (`--key X`), a value must look like a key: a wrong mask would
falsify the message of an error. A secret that nothing names (`-k X`) cannot be told from other words.

An argument may be long, so each pattern takes time in proportion to its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

HIDDEN = "***"

_LAST = (
    r"(?:passwords?|passwd|passphrase|pwd|secrets?|credentials?|tokens?|keys?|pats?|pass|auth|oauth|authorization|bearer|cookies?"
    r"|webhook(?:[_-]?url)?|sas|sig|signature)"
)
"""What the names of secrets end with."""
_POSSIBLE = re.compile(rf"(?:^|_){_LAST}$")
"""Names, as `_words` returns them, whose value is a secret if it looks like one."""
_CERTAIN = re.compile(
    r"(?:passwords?|passwd|passphrase|pwd|secrets?|credentials?|token)$"
    r"|(?:^|_)(?:auth|oauth|authorization|bearer|cookies?|webhook|webhook_?url)$|_pass$"
    r"|(?:access|account|anthropic|api|auth|aws|azure|client|cohere|comet|encryption|gemini|github|gitlab|google|groq|hf|huggingface"
    r"|license|master|mistral|neptune|openai|private|secret|service|signing|ssh|storage|wandb)_?(?:keys?|pats?|tokens)$"
)
"""Names whose value is a secret even if it is an ordinary word."""
_DOUBTFUL = re.compile(
    r"(?:^|_)(?:no|use|with|without|enable|disable|skip|require)_"
    r"|(?:^|_)(?:pad|eos|bos|eot|sot|cls|sep|unk|mask|blank|begin|start|end|stop|special|new|delimiter|placeholder|initializer|init"
    r"|class|instance|modifier|trigger|concept|style|image|img|video|audio|speech|text|word|char|byte|prompt|lang|language|label"
    r"|target|input|output|query|register|dist|num|n|max|min|per|total|first|second|last|one|two|single|multi|forward|backward"
    r")_?(?:token|pass)$"
)
"""But not these: switches (what follows is an argument of its own), tokens of a text, passes over data."""
_NO_SECRET = re.compile(
    r"true|false|none|null|yes|no|on|off|str|string|int|float|bool|-\w|<.*>"
    r"|[-+]?(?:\d{0,4}|\d*\.\d*)(?:e[-+]?\d+)?"
    r"|(?:~|\.{0,2})/.*|.*\.(?:csv|env|json|key|pem|toml|txt|ya?ml)",
    re.DOTALL | re.IGNORECASE,
)
"""Values that are no secret, whatever their name: constants, types, numbers (a long integer may be one), `<pad>`, files."""
_HEADERS = re.compile(r"(?:authorization|cookies?)$")
"""Headers of HTTP: what follows has spaces and semicolons."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_OPTION = re.compile(r"--[A-Za-z][\w.+/-]*(?:=.*)?", re.DOTALL)
_NAME = re.compile(r"--?[A-Za-z][\w.+/-]*|[A-Za-z]\w*(?:\.\w+)+|[A-Z][A-Z_]+")
"""An argument whose value is the next one: an option, a path in a configuration, a variable of the environment."""
_ASSIGNED = re.compile(r"([-+~]{0,2}[A-Za-z_][\w.+/@-]*=)(.+)", re.DOTALL)
_PAIR = re.compile(rf"(?<![\w.+-])([\w.+-]*{_LAST}[\d_]*)\\?[\"']?\s*([=:])(?!//)(\s*)", re.IGNORECASE)
"""A name and its sign in a longer text: an assignment, a query, a header, JSON."""
_QUOTED = re.compile(r'\\"(?:(?!\\").)*|"(?:[^"\\]|\\.)*|\'[^\']*|\[[^\]]*|\{[^}]*', re.DOTALL)
_OPENING = re.compile(r"\A\\?[\"']")
_PLAIN = re.compile(r"[^\s,;&\"'})\]]+")
_AFTER_SPACE = re.compile(r"[^,;})\]\"'\r\n]+")
_LINE = re.compile(r"[^\"'\r\n]+")
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|sk-(?:ant|proj|or|lf|admin|svcacct)-[\w-]{16,}|sk-[A-Za-z0-9]{20,}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|nvapi-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|gl(?:pat|rt|dt)-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-Ag[\w-]{16,}|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,})"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|(?<=hooks\.slack\.com/)\S+|(?<=/api/webhooks/)\S+|(?<=Bearer )\S+|(?<=bearer )\S+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
"""Tokens by their documented prefixes (Hugging Face, OpenAI, Stripe, Groq, NVIDIA, GitHub, GitLab, npm, PyPI, Slack, AWS,
Google, SendGrid), JSON web tokens, what follows `Bearer`, the addresses of webhooks, and private keys."""
_IN_ADDRESS = re.compile(r"(?<=://)(?:[^/\s?#\"':@]*:)?([^/\s?#\"']+)(?=@)")
"""User and password in an address; the group is the password, or the user where there is none."""
_MIN = 6
"""Characters of a secret that is hidden wherever it appears: shorter ones are parts of other words."""
_NAME_END = 64
"""Characters at the end of a name that are looked at."""
_DECISIVE = 128
"""Characters of a value in a longer text that decide whether it is a secret: a bound for the time that a text takes."""

_Place = tuple[int, int]


def mask(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return arguments with `***` in place of secrets."""
    return tuple(_hidden(argument, places) for argument, places in _located(arguments))


def without_secrets(text: str, arguments: Iterable[str]) -> str:
    """Return a text without the secrets that are in arguments, wherever they appear in it."""
    for secret in _secrets_in(tuple(arguments)):
        text = text.replace(secret, HIDDEN)
    return text


@lru_cache(maxsize=1)
def _secrets_in(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the secrets of arguments, the longest first: one may be a part of another."""
    written = {argument[begin:end] for argument, places in _located(arguments) for begin, end in places}
    secrets = written | {unquote(secret) for secret in written}
    return tuple(sorted((secret for secret in secrets if len(secret) >= _MIN), key=len, reverse=True))


def _located(arguments: Iterable[str]) -> Iterator[tuple[str, list[_Place]]]:
    """Yield each argument with the places of its secrets, which may overlap."""
    name = ""
    """The option whose value is due."""
    for argument in arguments:
        if name and _OPTION.fullmatch(argument) is None and _is_secret(name, argument):
            yield argument, [(0, len(argument))]
            name = name if re.search("[^s]s$", _words(name)) else ""
            continue
        name = argument if _NAME.fullmatch(argument) else ""
        yield argument, _places(argument)


def _hidden(argument: str, places: list[_Place]) -> str:
    """Return an argument with `***` in place of what is at some places."""
    parts: list[str] = []
    position = 0
    for begin, end in sorted(places):
        if begin >= position:
            parts += [argument[position:begin], HIDDEN]
        position = max(position, end)
    return "".join((*parts, argument[position:]))


def _places(argument: str) -> list[_Place]:
    """Return the places of the secrets in one argument, in any order."""
    assigned = _ASSIGNED.fullmatch(argument)
    if assigned is not None and _is_secret(assigned[1], assigned[2]):
        return [assigned.span(2)]
    places = [token.span() for token in _TOKEN.finditer(argument)]
    places += [place for user in _IN_ADDRESS.finditer(argument) for place in (user.span(), user.span(1))]
    position = 0
    while (pair := _PAIR.search(argument, position)) is not None:
        position = pair.end()
        begin, end = _value(pair, position + _DECISIVE)
        if _is_secret(pair[1], argument[begin:end]):
            begin, position = _value(pair, len(argument))
            places.append((begin, position))
    return places


def _value(pair: re.Match[str], end: int) -> _Place:
    """Return the place of what follows a name and its sign, without its opening quote, up to `end`."""
    if _HEADERS.search(_words(pair[1])):
        kinds = (_LINE, _QUOTED)
    else:
        kinds = (_QUOTED, _AFTER_SPACE if pair[2] == ":" and pair[3] else _PLAIN)
    for kind in kinds:
        if (value := kind.match(pair.string, pair.end(), end)) is not None:
            return value.end() - len(_OPENING.sub("", value[0])), value.end()
    return pair.end(), pair.end()


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value behind a name is a secret."""
    words = _words(name)
    if _CERTAIN.search(words) and not _DOUBTFUL.search(words):
        return _NO_SECRET.fullmatch(value.strip()) is None or _looks_random(value)
    return _POSSIBLE.search(words) is not None and _looks_random(value)


def _looks_random(value: str) -> bool:
    """Return whether a value has a run of letters and digits as keys have them: `S3CRETxyz`, not `resnet50`."""
    runs = re.findall("[A-Za-z0-9]{8,}", value)
    return any(len(re.findall("[A-Z0-9]", run)) >= 5 and not run.isalpha() and not run.isdigit() for run in runs)


def _words(name: str) -> str:
    """Return the last words of a name as the patterns of names want them: `db.apiKey` as `db_api_key`."""
    return "_".join(_WORDS.findall(name[-_NAME_END:])).lower()
