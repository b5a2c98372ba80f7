"""Makes the helpers of the trainer's own tests importable here, and one model for all tests."""

import os
import sys
from pathlib import Path

import pytest
from cpu_settings import ENVIRONMENT

# Left to itself, vLLM wants nine tenths of the machine's memory and one core.
os.environ |= {name: value for name, value in ENVIRONMENT.items() if name.startswith("VLLM_")}
sys.path.append(str(Path(__file__).parents[1] / "integration"))


@pytest.fixture(scope="session")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that often calls its tool."""
    from trainer_world import write_base_model

    folder = tmp_path_factory.mktemp("base") / "model"
    write_base_model(folder)
    return folder
