"""Which arguments of a script are hidden."""

from __future__ import annotations

import re
from time import process_time

import pytest
from helpers.examples import combinations

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
        "--api-key|S", "--api-key=S", "API_KEY=S", "TOKEN=S", "-token|S", "--openaiApiKey|S", "--wandb-key|S",
        "--key|S", "MODEL.API_KEY|S", "++db.password=S", "db@auth.token=S", "--api-keys|S|2S", "-DTOKEN=S",
        "-e|HF_TOKEN=S", "--hf_token:S", '{"token": "S"}', '{"a":1,"api_key":"S","b":2}', "{'password': 'S'}",
        '{\\"token\\": \\"S\\"}', '{"password": "a\\"S"}', '{"api_tokens": ["x","S"]}', "https://x/?a=1&token=S&b=2",
        "url=https://x/?token=S", "https://u:p@S@host/x", "redis://:S@h", "-H|Authorization: Bearer S",
        "-H|Authorization: Basic S==", "Cookie: a=b; c=S", "X-Api-Key: S", "Bearer S", "export TOKEN=S; python x",
        "TOKEN='a S' python", "password: my S", "--set|env.TOKEN=S,foo=1", "--password=x=y S", "--password|-S",
        "--password|--9S", "AccountName=a;AccountKey=S;End=b", "--aws-secret-access-key|S", "--db-pass|S",
        "GITHUB_PAT=S", "--webhook-url=S", "https://hooks.slack.com/services/T/B/S", "PGPASSWORD=S",
        "https://x?X-Amz-Signature=S", "https://x?sv=1&sig=S", "--overrides|[trainer.logger.api_key=S]",
        "--|--token|S", "--use_auth_token|S", "--pass|S", "--auth|me:S",
    ],
)  # fmt: skip
def test_secret_is_hidden_once_in_any_form(written: str) -> None:
    masked = mask(re.sub(r"(?<![A-Z])S(?![A-Za-z])", SECRET, written).split("|"))
    assert SECRET not in " ".join(masked)
    assert mask(masked) == masked


@pytest.mark.parametrize("secret", ["swordfish", "correct horse", "12345678", "pass/word.x", "-x-", "Tr0ub4dor&3"])
@pytest.mark.parametrize(
    "name",
    [
        "--api-key", "--hf-token", "--hub_token", "--push_to_hub_token", "--token", "--password", "--db-pass",
        "--passphrase", "--slack-bot-token", "--client-secret", "--wandb-key", "--auth", "logger.api_key", "HF_TOKEN",
        "MYSQL_PWD", "--openai_key",
    ],
)  # fmt: skip
def test_ordinary_word_is_hidden_behind_name_of_secret(name: str, secret: str) -> None:
    assert mask([name, secret, "--lr", "1"]) == (name, "***", "--lr", "1")
    assert mask([f"{name}={secret}"]) == (f"{name}=***",)


@pytest.mark.parametrize(
    "token",
    [
        "gsk_" + "aB3" * 17 + "a", "r8_" + "aB3" * 12, "npm_" + "aB3" * 12, "sk-" + "a1" * 24,
        "sk-proj-" + "a_B-3" * 9, "sk-ant-api03-" + "a_B-3" * 9, "sk_live_" + "aB3" * 8,
        "pypi-AgEIcHlwaS5vcmc" + "a_B-3" * 9, "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc_-9",
    ],
)  # fmt: skip
def test_a_token_is_known_by_its_prefix(token: str) -> None:
    assert mask(["-x", f"a/{token}"]) == ("-x", "a/***")


LONG = [
    "a" * 200_000, "a= " * 70_000, "://" + "a" * 200_000, 'token: "' * 20_000, "a" + " " * 200_000,
    "eyJaaaaaaaaaa-" * 9_000, "key=[" * 20_000, 'key: "' * 20_000, "token:<" * 20_000 + ">", "token=[" * 20_000,
    "sk-" * 60_000, "token_" * 40_000, "SG.aaaaaaaaaaaaaaaaa" * 10_000, "-----BEGIN " * 20_000,
    "eyJaaaaaaaaaa." * 9_000, "https://a" * 20_000, "token:/" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "option"), combinations(LONG, ["", "--note=", "--key=", "--token="]), ids=lambda text: text[:16]
)
def test_a_long_argument_takes_no_time(text: str, option: str) -> None:
    began = process_time()
    mask([option + text])
    assert process_time() - began < 1


def test_a_known_secret_is_hidden_in_other_texts() -> None:
    arguments = ["--api-key", SECRET, f"--token=2{SECRET}", "--lr", "0.01", "--pwd", "a"]
    assert without_secrets(f"401 for {SECRET}: lr 0.01, 2{SECRET}, a", arguments) == "401 for ***: lr 0.01, ***, a"


@pytest.mark.parametrize(
    ("text", "argument", "expected"),
    [
        ("for bob:hunter2222, swordfish1", "postgres://bob:hunter2222@db.org/x?password=swordfish1", "for ***, ***"),
        ("password 'hunter2222' is wrong", "postgres://bob:hunter2222@db.org/x", "password '***' is wrong"),
        ("password 'p@ssword' is wrong", "postgres://bob:p%40ssword@db.org/x", "password '***' is wrong"),
        ("no access with abcdefgh", "https://abcdefgh@db.org/x", "no access with ***"),
        ("swordfish1, hunter2222", '{"api_key": "swordfish1", "b": {"token": "hunter2222"}}', "***, ***"),
        ("swordfish1", "Authorization: Bearer swordfish1", "***"),
    ],
)
def test_several_secrets_of_argument_are_hidden_elsewhere(text: str, argument: str, expected: str) -> None:
    assert without_secrets(text, [argument]) == expected


@pytest.mark.parametrize(
    "argument",
    [
        "--tokenizer=gpt2", "--max-tokens=5", "--author=me", "--num_token_types=2", "--keys=a", "--lr=1e-3",
        "--sort-key=a", "--metric_key=loss", "--token-file=x", "https://x.org/a@b", "--passes=3", "--monkey=1",
        "--model.key_dim=4", "data: a b", "--secretary=2", "C:/keys/x", "--tokens=5", "--key=input_ids",
        "--image_key=jpg_1024", "--caption-key=txt", "--pad-token=<pad>", "--mask_token=[MASK]", "--bos-token=bos",
        "--forced_bos_token=ro_RO", "--image-token=image", "--num-token=512", "--max-token=131072",
        "model.pad_token=[PAD]", "--token=<cat-toy>", "--placeholder_token=<cat-toy>", "--initializer_token=toydog",
        "--modifier_token=<new1>", "--class_token=classes", "--word_delimiter_token=words|", "--blank_token=blank0",
        "--additional_special_tokens=sks_token", "--distToken=dist12", "--sig=0.5", "sig=0.1", "--pass=3",
        "--single-pass=trainer", "--signature=serving_default", "--sas=sasrec", "--oauth=true", "--shared-key=True",
        "--use_auth_token=True", "--token=None", "--password=null", "--token=0", "--secret=-1.5e-3",
        "--service-url=http://localhost:80", "--db-url=sqlite:///x.db", "--storage-url=sqlite:///optuna.db",
        "--schema=a:int,key:str,b:int", "--schema=id:int,token:str", "--output=out/r8_alpha16_dropout01",
        "--name=gsk_llama_70b_run_2024_x", "--model=sk-learn_model_name_long", "--name=npm_model_name_long_run_2",
        "--data=pypi-downloads-2024-full-dump", "--credentials=gcp.json", "--private-key=~/.ssh/id_rsa",
        "--ssh-key=./keys/a", "--pwd=/work/run", "--cookies=cookies.txt",
        '{"pad_token": "<pad>", "eos_token": "eostoken", "use_auth_token": true, "key": "input_ids"}',
        "--stop-token=stop", "--hub_model_id=me/token-classifier", "--label_key=password",
        "--monitor=val/token_accuracy", "--task_name=token-classification",
    ],
)  # fmt: skip
def test_other_options_stay(argument: str) -> None:
    assert mask([argument, *argument.split("=", 1)]) == (argument, *argument.split("=", 1))
    assert without_secrets(f"KeyError: {argument}", [argument, *argument.split("=", 1)]) == f"KeyError: {argument}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-auth", "data.csv"], ["--no-auth", "imagenet"], ["--use-auth-token", "train.txt"],
        ["--use_auth_token", "imagenet"], ["--token", "-v", "data"], ["--with-password", "imagenet1k"],
        ["input_token", "imagenet"], ["--columns", "token", "label"], ["--require-auth", "train2017"],
        ["--key", "resnet50", "--lr", "1"],
    ],
)  # fmt: skip
def test_what_follows_a_switch_stays(arguments: list[str]) -> None:
    assert mask(arguments) == tuple(arguments)
