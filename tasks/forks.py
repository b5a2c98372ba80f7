"""A new run that begins with another one's configuration and shares every stage that is equal."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tasks.home import home
from tasks.runs import RunError, RunSettings, create, read_settings, stored_config
from training.config import ExperimentConfig
from training.config_load import explain, merge
from training.errors import ConfigError


def create_fork(source: str, name: str, changes: Mapping[str, Any]) -> RunSettings:
    """Make the folder of run ``name``: the configuration of run ``source`` with ``changes``.

    An existing fork with the same changes is gone on with. Raises RunError where there is no such
    run, the names are equal or another run has the new one; ConfigError for wrong changes.
    """
    place = home()
    if source == name:
        raise RunError(f"a fork of run '{source}' needs a --name of its own")
    try:
        folder = place.run(source)
    except ValueError as error:
        raise RunError(str(error)) from None
    settings = read_settings(folder)
    changed = merge(stored_config(folder).model_dump(mode="json"), changes)
    try:
        config = ExperimentConfig.model_validate(changed)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    return create(
        config,
        name,
        settings.study,
        settings.tracking_uri,
        settings.stage_hours,
        settings.launcher,
        settings.image,
        settings.on_busy,
        forked_from=source,
    )
