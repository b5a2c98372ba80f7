from copy import deepcopy
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from flows.experiment import experiment
from flows.form import as_form
from training.config import ExperimentConfig
from training.config_load import names


@pytest.fixture(scope="module")
def form() -> dict[str, Any]:
    return as_form(parameter_schema(experiment).model_dump_for_openapi())


def test_profile_and_method_come_first_as_selects(form: dict[str, Any]) -> None:
    fields = form["properties"]
    in_order = sorted(fields, key=lambda name: fields[name]["position"])
    assert in_order[:5] == ["profile", "method", "seed", "iterations", "name"]
    assert fields["profile"]["enum"] == names("profiles")
    assert fields["method"]["enum"] == names("methods")
    assert "required" not in form


def test_every_key_of_the_configuration_has_a_described_field(form: dict[str, Any]) -> None:
    sections = form["definitions"]["Overrides"]["properties"]
    chosen = {"profile", "method", "seed", "iterations"}
    assert set(sections) == set(ExperimentConfig.model_fields) - chosen
    for name, section in sections.items():
        assert (section["title"], section["default"]) == (name, None)
        assert section["description"]
    for name, definition in form["definitions"].items():
        assert definition["additionalProperties"] is False
        for key, field in definition["properties"].items():
            assert field["title"] == key
            assert field["description"], f"{name}.{key} has no description"


def test_limits_and_choices_of_optional_values_are_plain_fields(form: dict[str, Any]) -> None:
    executor = form["definitions"]["ExecutorOverrides"]["properties"]
    alpha = executor["alpha"]
    assert (alpha["type"], alpha["minimum"], alpha["maximum"]) == ("number", 0, 1)
    assert "default" not in alpha
    assert executor["reference"]["enum"] == ["anchor", "second_group", "none"]
    assert form["properties"]["iterations"]["type"] == "integer"


@pytest.mark.parametrize("key", ["seed", "iterations"])
def test_the_limits_are_those_of_the_configuration(form: dict[str, Any], key: str) -> None:
    limits = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    config = ExperimentConfig.model_json_schema()["properties"][key]
    shown = {k: v for k, v in form["properties"][key].items() if k in limits}
    assert shown == {k: v for k, v in config.items() if k in limits}
    assert shown


def test_what_is_no_choice_with_none_stays_as_it_is() -> None:
    field = {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}], "default": None}
    model = {"properties": {"a": field, "b": {"type": "string", "default": "x"}}}
    before = deepcopy(model)
    assert as_form(model)["properties"] == before["properties"]
    assert model == before


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"profil": "tiny"}, r"'profil' was unexpected"),
        ({"profile": "huge"}, r"'profile'.*'huge' is not one of"),
        ({"seed": -1}, r"'seed'.*-1 is less than the minimum of 0"),
        ({"overrides": {"executr": {}}}, r"'overrides'.*'executr' was unexpected"),
        ({"overrides": {"executor": {"alphaz": 1}}}, r"executor'.*'alphaz' was unexpected"),
        ({"overrides": {"executor": {"alpha": 1.5}}}, r"alpha'.*1.5 is greater than .* 1$"),
        ({"overrides": {"anchor": {"refresh": "no"}}}, r"refresh'.*'no' is not one of"),
    ],
)
def test_the_server_refuses_by_name_and_value(
    form: dict[str, Any], parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence) as refused:
        validate(parameters, form, raise_on_error=True)
    assert "\n" not in str(refused.value)


def test_the_server_takes_what_a_form_sends(form: dict[str, Any]) -> None:
    sections = {"executor": {"alpha": 0.5}, "model": None, "anchor": {"refresh": "never"}}
    validate({"profile": "tiny", "iterations": 1, "overrides": sections}, form, raise_on_error=True)
    validate({"iterations": None, "overrides": None}, form, raise_on_error=True)
