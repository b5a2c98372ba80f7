"""Resolve a configuration: paper < profile < method < overrides; mistakes end in one sentence."""

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from training.config import ExperimentConfig
from training.errors import ConfigError

CONFIGS = Path(__file__).parent / "configs"


def names(kind: str) -> list[str]:
    """Names of the ``profiles`` or ``methods`` that ship with the project, sorted."""
    return sorted(path.stem for path in (CONFIGS / kind).glob("*.yaml"))


def load_layer(kind: str, name: str) -> dict[str, Any]:
    """Read a profile or a method (``kind`` is ``profiles`` or ``methods``) as nested values.

    Raises ConfigError for a name that does not exist.
    """
    known = names(kind)
    if name not in known:
        raise ConfigError(f"{kind[:-1]} '{name}' does not exist; choose from {', '.join(known)}")
    content = yaml.safe_load((CONFIGS / kind / f"{name}.yaml").read_text(encoding="utf-8"))
    return dict(content or {})


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Turn ``section.key=value`` strings (values are YAML) into nested overrides.

    Raises ConfigError where '=' is missing or a value is not YAML.
    """
    out: dict[str, Any] = {}
    for item in assignments:
        key, separator, text = item.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"override '{item}' is not of the form section.key=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"override '{item}': the value is not valid YAML") from error
        if isinstance(value, str) and _is_float(value):
            value = float(value)  # YAML 1.1 reads 1e-4 as text
        path = key.strip().split(".")
        for part in reversed(path[1:]):
            value = {part: value}
        out = merge(out, {path[0]: value})
    return out


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Values of ``above`` over those of ``below``, nested mappings merged."""
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            out[key] = merge(old, value)
        else:
            out[key] = value
    return out


def load_config(
    profile: str = "tiny",
    method: str = "anchorloop",
    overrides: Mapping[str, Any] | None = None,
) -> ExperimentConfig:
    """Resolve the configuration of one experiment.

    Raises ConfigError, with one sentence, for anything unknown, out of range or inconsistent.
    """
    values = merge(load_layer("profiles", profile), load_layer("methods", method))
    values = merge(values, overrides or {})
    for key, given in (("profile", profile), ("method", method)):
        if values.get(key, given) != given:
            raise ConfigError(f"'{key}' is chosen by --{key}, not by an override")
        values[key] = given
    try:
        return ExperimentConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """The first mistake of a pydantic error as one sentence with key, value and remedy."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        hint = _did_you_mean(first["loc"])
        return f"unknown key '{where}'{hint}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return f"{where}: {message}" if where else message
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{where} = {first['input']!r}: {message}"


def _did_you_mean(location: Sequence[int | str]) -> str:
    model: Any = ExperimentConfig
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    known = list(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known here: {', '.join(known)}"


@cache
def optional_model(model: type[BaseModel]) -> type[BaseModel]:
    """A copy of a config model in which every field may be left out (None).

    The Prefect form shows this one, so that it never overrides a profile by its own defaults.
    """
    return _optional(model, f"{model.__name__}Overrides", frozenset())


def _optional(model: type[BaseModel], name: str, without: frozenset[str]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key, field in model.model_fields.items():
        if key in without:
            continue
        kind: Any = field.annotation
        described = field.description
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            described = described or (inspect.getdoc(kind) or "").replace("``", "")
            kind = optional_model(kind)
        for limit in field.metadata:  # keeps ge, le, … in the form
            kind = Annotated[kind, limit]
        fields[key] = (kind | None, Field(None, title=key, description=described))
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Overrides") or name)
    settings = ConfigDict(extra="forbid", frozen=True, title=words.capitalize())
    return create_model(name, __config__=settings, **fields)


Overrides: type[BaseModel] = _optional(
    ExperimentConfig, "Overrides", frozenset({"profile", "method", "seed", "iterations"})
)
"""What the Prefect form offers beside profile, method, seed and iterations: all optional."""


def given(overrides: BaseModel | None) -> dict[str, Any]:
    """The values a user actually filled in, nested, without the empty ones."""
    return {} if overrides is None else _strip(overrides.model_dump(exclude_none=True))


def _strip(values: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for key, value in values.items():
        kept = _strip(value) if isinstance(value, dict) else value
        if kept != {}:
            out[key] = kept
    return out
