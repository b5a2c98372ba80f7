"""What preflight says of GPUs and images, with a stand-in for nvidia-smi on the path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.checks import sandbox_in_container
from flows.gpu_checks import (
    Unfit,
    check_gpus,
    check_image,
    check_libraries,
    check_shared_memory,
    gpu_checks,
)
from flows.naming import assigned, resolve
from tasks.launchers import LocalLauncher, launcher
from training.config import ExperimentConfig, Trainer
from training.config_load import load_config, parse_assignments
from training.errors import ConfigError, InfraError

FREE = "{}, GPU-{}a, 81559, 81000"
PLAIN_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
USED = "{}, GPU-{}a, 81559, 9000"


def asked(gpus: int, profile: str = "qwen3-4b") -> ExperimentConfig:
    return load_config(profile, "anchorloop", {"trainer": {"gpus_per_node": gpus}})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Say which lines nvidia-smi prints; None for a machine that has none."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def has(*lines: str) -> None:
        program = tmp_path / "nvidia-smi"
        said = "\n".join(line.format(i, i) for i, line in enumerate(lines))
        program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{said}\nEND\n")
        program.chmod(0o755)

    return has


def test_free_gpus_are_counted(machine) -> None:
    machine(FREE, FREE)
    assert check_gpus(asked(2)).startswith("2 free, the smallest with 80 GiB, about")


def test_a_machine_without_gpus_is_refused_in_one_sentence(machine) -> None:
    with pytest.raises(Unfit, match=r"visible GPUs: 0, trainer.gpus_per_node: 8;.*torch"):
        check_gpus(asked(8))


def test_too_few_are_refused(machine) -> None:
    machine(FREE)
    with pytest.raises(Unfit, match=r"visible GPUs: 1, trainer.gpus_per_node: 2"):
        check_gpus(asked(2))


def test_a_gpu_in_use_is_named(machine) -> None:
    machine(FREE, USED)
    with pytest.raises(Unfit, match=r"somebody uses GPU 1 \(9000 of 81559 MiB free\)"):
        check_gpus(asked(2))


@pytest.mark.parametrize("named", ["0,2", "GPU-0a,GPU-2", " 2 , 0 "])
def test_only_visible_ones_count(machine, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    machine(FREE, USED, FREE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert check_gpus(asked(2)).startswith("2 free")
    with pytest.raises(Unfit, match="visible GPUs: 2"):
        check_gpus(asked(3))


def test_gpus_of_a_cluster_are_not_looked_for_here(machine, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")
    assert "cluster at first:6379" in check_gpus(asked(8))


def test_the_devices_of_another_platform_are_not_looked_for(machine, monkeypatch) -> None:
    machine()
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert "verl's platform 'cpu'" in check_gpus(asked(1))


def test_gpus_that_are_too_small_are_refused(machine) -> None:
    machine("0, GPU-0a, 24564, 24300")
    with pytest.raises(Unfit, match=r"smallest GPU has 24 GiB and about \d+ GiB are needed"):
        check_gpus(asked(1, "mimo-7b"))


def test_on_the_command_line_the_trainer_is_refused_without_a_gpu(machine, tmp_path) -> None:
    machine()
    command = [sys.executable, "-m", "flows.cli.main", "preflight", "--trainer", "verl"]
    command += ["--set", "optimiser.kl=k3"]
    told = {**os.environ, "ANCHORLOOP_HOME": str(tmp_path)}
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=120)
    (line,) = [x for x in done.stdout.splitlines() if x.split()[1:2] == ["gpus"]]
    assert line.startswith("FAIL")
    assert "--trainer torch" in line
    assert done.returncode == 1


def test_the_flag_is_an_assignment() -> None:
    assert assigned(["a=1"], "verl") == ["a=1", "trainer.backend=verl"]
    assert assigned(None, None) == []
    with pytest.raises(ConfigError, match=r"trainer.backend = 'jax'"):
        resolve("tiny", "anchorloop", 0, None, parse_assignments(assigned(None, "jax")))


def test_an_environment_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match=r"no-such-python' has no torch.*build verl's environment"):
        check_libraries(str(tmp_path / "no-such-python"))
    with pytest.raises(Unfit, match="has no torch"):
        check_libraries(PLAIN_PYTHON)
    (tmp_path / "broken").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "broken").chmod(0o755)
    with pytest.raises(ConfigError, match="does not say its libraries"):
        check_libraries(str(tmp_path / "broken"))


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
    assert names("verl", "local") == ["gpus", "shared memory", "gpu libraries"]
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
