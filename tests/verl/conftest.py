"""Makes the helpers of the trainer's own tests importable here, and one model for all tests."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "integration"))


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that often calls its tool."""
    from trainer_world import write_base_model

    folder = tmp_path_factory.mktemp("base") / "model"
    write_base_model(folder)
    return folder
