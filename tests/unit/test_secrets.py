"""Addresses without their passwords, and environments without secrets."""

import pytest

from tasks.secrets import has_secret, redact, stage_environment, without_secrets


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:pw@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("postgresql+asyncpg://u:p@w@host/db", "postgresql+asyncpg://u:***@host/db"),
        ("postgresql://u:a/b+c=@host/db", "postgresql://u:***@host/db"),
        ("postgresql://u:@host/db", "postgresql://u:***@host/db"),
        ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
        ("https://u:pw@host/path", "https://u:***@host/path"),
        ("https://token@host/path", "https://***@host/path"),
        ("postgresql://host/db?user=u&password=pw&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("no route to 'http://u:pw@h:1', 2 tries", "no route to 'http://u:***@h:1', 2 tries"),
    ],
)  # fmt: skip
def test_passwords_are_taken_out(address: str, shown: str) -> None:
    assert redact(address) == shown
    assert has_secret(address)
    assert redact(shown) == shown, "what was redacted once is not redacted again"


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:////home/a@b/mlflow.db",
        "http://127.0.0.1:5000",
        "http://host:5000/name@version",
        "postgresql://user@host/db",
        "postgresql:///db?host=/run/postgresql",
        "databricks://profile",
        "write to someone@example.org",
    ],
)
def test_addresses_without_a_password_stay_as_they_are(address: str) -> None:
    assert redact(address) == address
    assert not has_secret(address)


SECRET = {
    "HF_TOKEN": "s",
    "AWS_SECRET_ACCESS_KEY": "s",
    "OPENAI_API_KEY": "s",
    "PGPASSWORD": "s",
    "PREFECT_API_AUTH_STRING": "s",
    "PREFECT_API_DATABASE_CONNECTION_URL": "postgresql://u:s@h/d",
    "MLFLOW_TRACKING_USERNAME": "s",
    "HTTPS_PROXY": "http://u:s@proxy:1",
}
PLAIN = {
    "PATH": "/bin",
    "CUDA_VISIBLE_DEVICES": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HTTP_PROXY": "http://proxy:1",
    "RAY_ADDRESS": "first:6379",
    "KEYBOARD": "de",
}


def test_a_stage_inherits_no_secret() -> None:
    assert without_secrets({**SECRET, **PLAIN}) == PLAIN
    assert stage_environment("executor", {**SECRET, **PLAIN}) == PLAIN


@pytest.mark.parametrize("stage", ["base_model", "evaluation"])
def test_a_stage_that_may_fetch_has_what_fetching_needs_and_no_more(stage: str) -> None:
    kept = stage_environment(stage, {**SECRET, **PLAIN})
    assert set(kept) - set(PLAIN) == {"HF_TOKEN", "HTTPS_PROXY"}
