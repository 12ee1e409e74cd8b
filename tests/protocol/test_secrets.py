"""Which arguments of a script are hidden."""

from __future__ import annotations

import re

import pytest

from gradtui.protocol.secrets import mask, without_secrets

TOKEN = "hf_" + "aB3" * 12


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--token", "abc", "--lr", "1"], ["--token", "***", "--lr", "1"]),
        (["--hf-token=abc"], ["--hf-token=***"]),
        (["--wandb_api_key", "abc"], ["--wandb_api_key", "***"]),
        (["wandb.api_key=abc", "+db.password=x=y"], ["wandb.api_key=***", "+db.password=***"]),
        (["-p", TOKEN, f"--note=a {TOKEN}"], ["-p", "***", "--note=a ***"]),
        (["https://me:abc@host/x", "s3://bucket/x"], ["https://***@host/x", "s3://bucket/x"]),
        (["--token", "--lr", "1"], ["--token", "--lr", "1"]),
    ],
)
def test_secrets_are_hidden(given: list[str], expected: list[str]) -> None:
    assert mask(given) == tuple(expected)


SECRET = "S3CRETxyz"


@pytest.mark.parametrize(
    "written",
    [
        "--api-key|S", "--api-key=S", "API_KEY=S", "TOKEN=S", "-token|S", "--openaiApiKey|S", "--wandb-key|S", "--key|S",
        "MODEL.API_KEY|S", "++db.password=S", "db@auth.token=S", "--api-keys|S|2S", "-DTOKEN=S", "-e|HF_TOKEN=S",
        "--hf_token:S",         '{"token": "S"}', '{"a":1,"api_key":"S","b":2}', "{'password': 'S'}",
        '{\\"token\\": \\"S\\"}', '{"password": "a\\"S"}',
        '{"api_tokens": ["x","S"]}', "https://x/?a=1&token=S&b=2", "url=https://x/?token=S", "https://u:p@S@host/x",
        "redis://:S@h", "-H|Authorization: Bearer S", "-H|Authorization: Basic S==", "Cookie: a=b; c=S", "X-Api-Key: S",
        "Bearer S",         "export TOKEN=S; python x", "TOKEN='a S' python", "password: my S", "--set|env.TOKEN=S,foo=1",
        "--password=x=y S",
        "--password|-S", "--password|--9S", "AccountName=a;AccountKey=S;End=b", "--aws-secret-access-key|S", "--db-pass|S",
        "GITHUB_PAT=S", "--webhook-url=S", "https://hooks.slack.com/services/T/B/S", "PGPASSWORD=S",
        "https://x?X-Amz-Signature=S",
        "--overrides|[trainer.logger.api_key=S]", "--|--token|S",
    ],
)  # fmt: skip
def test_a_secret_is_hidden_however_it_is_given_and_hiding_it_again_changes_nothing(written: str) -> None:
    masked = mask(re.sub(r"(?<![A-Z])S(?![A-Za-z])", SECRET, written).split("|"))
    assert SECRET not in " ".join(masked)
    assert mask(masked) == masked


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a= " * 70_000, "://" + "a" * 200_000, 'token: "' * 30_000, "a" + " " * 200_000]
)
def test_a_long_argument_takes_no_time(text: str) -> None:
    assert mask([text])


def test_a_known_secret_is_hidden_in_other_texts() -> None:
    arguments = ["--api-key", SECRET, f"--token=2{SECRET}", "--lr", "0.01", "--pwd", "a"]
    assert without_secrets(f"401 for {SECRET}: lr 0.01, 2{SECRET}, a", arguments) == "401 for ***: lr 0.01, ***, a"


@pytest.mark.parametrize(
    "argument",
    [
        "--tokenizer=gpt2", "--max-tokens=5", "--author=me", "--num_token_types=2", "--keys=a", "--lr=1e-3", "--sort-key=a",
        "--metric_key=loss", "--token-file=x", "https://x.org/a@b", "--passes=3", "--monkey=1", "--model.key_dim=4",
        "data: a b", "--secretary=2", "C:/keys/x", "--tokens=5",
    ],
)  # fmt: skip
def test_other_options_stay(argument: str) -> None:
    assert mask([argument, *argument.split("=")]) == (argument, *argument.split("="))
