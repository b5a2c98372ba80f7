"""What preflight says of GPUs and images, with a stand-in for nvidia-smi on the path."""

import os
from pathlib import Path

import pytest

from flows.checks import sandbox_in_container
from flows.gpu_checks import Unfit, check_gpus, check_image, check_shared_memory, gpu_checks
from tasks.launchers import LocalLauncher, launcher
from training.config import ExperimentConfig, Trainer
from training.errors import InfraError

FREE = "{}, GPU-{}a, 81559, 81000"
USED = "{}, GPU-{}a, 81559, 9000"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Say which lines nvidia-smi prints; None for a machine that has none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def has(*lines: str) -> None:
        program = tmp_path / "nvidia-smi"
        said = "\n".join(line.format(i, i) for i, line in enumerate(lines))
        program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{said}\nEND\n")
        program.chmod(0o755)

    return has


def test_free_gpus_are_counted(machine) -> None:
    machine(FREE, FREE)
    assert check_gpus(Trainer(gpus_per_node=2)) == "2 free, the smallest with 80 GiB"


def test_a_machine_without_gpus_is_refused_in_one_sentence(machine) -> None:
    with pytest.raises(Unfit, match=r"visible GPUs: 0, trainer.gpus_per_node: 8;.*torch"):
        check_gpus(Trainer(backend="verl"))


def test_too_few_are_refused(machine) -> None:
    machine(FREE)
    with pytest.raises(Unfit, match=r"visible GPUs: 1, trainer.gpus_per_node: 2"):
        check_gpus(Trainer(gpus_per_node=2))


def test_a_gpu_in_use_is_named(machine) -> None:
    machine(FREE, USED)
    with pytest.raises(Unfit, match=r"somebody uses GPU 1 \(9000 of 81559 MiB free\)"):
        check_gpus(Trainer(gpus_per_node=2))


@pytest.mark.parametrize("named", ["0,2", "GPU-0a,GPU-2", " 2 , 0 "])
def test_only_visible_ones_count(machine, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    machine(FREE, USED, FREE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert check_gpus(Trainer(gpus_per_node=2)).startswith("2 free")
    with pytest.raises(Unfit, match="visible GPUs: 2"):
        check_gpus(Trainer(gpus_per_node=3))


def test_gpus_of_a_cluster_are_not_looked_for_here(machine, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")
    assert "cluster at first:6379" in check_gpus(Trainer())


def test_shared_memory_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.gpu_checks.SHM_GIB", 0)
    assert "GiB free" in check_shared_memory(tmp_path)
    monkeypatch.setattr("flows.gpu_checks.SHM_GIB", 1 << 30)
    with pytest.raises(Unfit, match="remount"):
        check_shared_memory(tmp_path)


def test_an_engine_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix:///no-such-socket-{os.getpid()}")
    with pytest.raises(InfraError, match=r"no Docker engine answers.*start it, or set DOCKER_HOST"):
        check_image(launcher("docker"))


def test_which_checks_are_asked() -> None:
    def names(backend: str, place: str) -> list[str]:
        config = ExperimentConfig(trainer=Trainer.model_validate({"backend": backend}))
        return [name for name, _ in gpu_checks(config, launcher(place))]

    assert names("torch", "local") == []
    assert names("torch", "docker") == ["container image"]
    assert names("verl", "local") == ["gpus", "shared memory"]
    assert names("verl", "docker") == ["container image", "gpus"]


def test_a_process_has_no_image() -> None:
    assert LocalLauncher().image() is None
    with pytest.raises(ValueError, match="takes no image; add --launcher docker"):
        launcher("local", "anchorloop-gpu")


def test_stages_in_containers_have_their_sandbox_beside_or_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(isolation: str):
        return sandbox_in_container(
            ExperimentConfig.model_validate({"sandbox": {"isolation": isolation}})
        )

    monkeypatch.setattr("flows.checks.container_problem", lambda image: None)
    assert "containers beside it" in check("auto").detail
    assert "bubblewrap inside" in check("bubblewrap").detail
    monkeypatch.setattr("flows.checks.container_problem", lambda image: f"container: no {image}")
    assert "bubblewrap inside" in check("auto").detail
    assert not check("container").good
    assert check("container").detail == "container: no anchorloop-sandbox"
