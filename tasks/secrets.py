"""Secrets stay in the environment: what of a text may be stored or shown, what a stage is given.

Passwords and tokens reach us by environment variables alone. Addresses that carry them are stored
and printed without, and the processes that run a stage's science never see them.
"""

import re
from collections.abc import Mapping

_PASSWORD = re.compile(r"(://[^\s/:@'\"]*):(?:[^\s/'\"]*|(?!\d+(?:/|$))[^\s@'\"]*)@")
"""``user:password@`` of an address; a password may hold an ``@`` or, carelessly, a ``/``."""
_TOKEN = re.compile(r"(https?://)[^\s/:@'\"]+@")
"""A user without a password in a web address: such users are tokens."""
_PARAMETER = re.compile(r"([?&](?:password|passwd|sslpassword|token|access_token)=)[^&\s'\"]+")
_WORDS = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PGPASSWORD|CREDENTIALS?|AUTH_STRING|(?:API|ACCESS|"
    r"SECRET)_KEY)(?:_|$)"
)
"""Names of variables that hold a secret."""
_DRIVERS_OWN = ("PREFECT_", "MLFLOW_")
"""Variables of the orchestrator and the tracker; addresses of databases with passwords too."""
_FETCHING = ("base_model", "evaluation")
"""Stages that may fetch weights or questions."""
PASSED_TO_FETCH = ("HF_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""What fetching needs, login and proxy included."""


def redact(text: str) -> str:
    """The text with the password or token of every address in it replaced by ``***``."""
    text = _PASSWORD.sub(r"\1:***@", text)
    text = _TOKEN.sub(r"\1***@", text)
    return _PARAMETER.sub(r"\1***", text)


def has_secret(address: str) -> bool:
    """Whether an address carries a password or token."""
    return redact(address) != address


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that may hold a secret."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_DRIVERS_OWN) and not _WORDS.search(name) and not has_secret(value)
    }


def stage_environment(stage: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What a stage's process inherits: no secret, but those that fetching needs where it may."""
    names = PASSED_TO_FETCH if stage in _FETCHING else ()
    fetching = {name: environment[name] for name in names if name in environment}
    return {**without_secrets(environment), **fetching}
