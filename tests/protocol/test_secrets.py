"""Which arguments of a script are hidden."""

from __future__ import annotations

import pytest

from gradtui.protocol.secrets import mask

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


@pytest.mark.parametrize(
    "argument", ["--tokenizer=gpt2", "--max-tokens=5", "--author=me", "--num_token_types=2", "--keys=a", "--lr=1e-3"]
)
def test_other_options_stay(argument: str) -> None:
    assert mask([argument, *argument.split("=")]) == (argument, *argument.split("="))
