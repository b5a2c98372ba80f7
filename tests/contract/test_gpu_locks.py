"""GPU locks between real processes. The ids are names here: no GPU is needed to lock one."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.runs import create, driving
from tasks.stage import StageFailed, run_stage
from tests.contract.conftest import ROOT, starts, when_waiting
from training import gpu_locks
from training.config_load import load_config
from training.errors import InfraError
from training.gpu_locks import gpu_in_use, gpus_of, holding_gpus, visible_gpus

HOLD = """
    import sys, time
    from training.gpu_locks import holding_gpus
    with holding_gpus(sys.argv[1:]):
        print("held", flush=True)
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of these tests alone, for this process and those it starts."""
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(gpu_locks, "FOLDER", tmp_path / "anchorloop-gpus")
    monkeypatch.setattr(gpu_locks, "PATIENCE_S", 0.3)


def holder(*gpus: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(HOLD), *gpus]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "held"
    return process


def test_sets_that_share_a_gpu_exclude_each_other_until_the_holder_dies() -> None:
    with holder("GPU-a", "GPU-b") as other:
        said = f"GPU-b is in use by process {other.pid}"
        assert said in str(gpu_in_use(["GPU-c", "GPU-b"]))
        with pytest.raises(InfraError, match=said), holding_gpus(["GPU-c", "GPU-b"]):
            pass
        with holding_gpus(["GPU-c"]):
            assert gpu_in_use(["GPU-c"]) is not None
        other.send_signal(signal.SIGKILL)
    assert gpu_in_use(["GPU-a", "GPU-b", "GPU-c"]) is None
    with holding_gpus(["GPU-b", "GPU-a"]):
        pass


def test_what_is_held_is_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b,GPU-c")
    assert visible_gpus(2) == ["GPU-a", "GPU-b"]
    with holding_gpus(visible_gpus(2)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a, GPU-b,GPU-c"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus(2) == []
    with holding_gpus([]):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Say what this machine's nvidia-smi does; all GPUs are visible."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("CUDA_VISIBLE_DEVICES", "RAY_ADDRESS", "VERL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)

    def does(words: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return does


def test_numbers_are_looked_up(smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    smi("echo GPU-a; echo GPU-b; echo GPU-c")
    assert visible_gpus(2) == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,MIG-x")
    assert visible_gpus(8) == ["GPU-c", "GPU-a", "MIG-x"]


def test_a_driver_that_fails_is_no_machine_without_gpus(smi: Callable[[str], None]) -> None:
    smi("echo Unable to determine the device handle; echo GPU is lost >&2; exit 15")
    with pytest.raises(InfraError, match=r"status 15 \(Unable to .* handle GPU is lost\); see"):
        visible_gpus(1)


def test_a_stage_that_needs_more_gpus_than_are_visible_is_refused(
    stub_home: Path, smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = {"backend": "verl", "python": sys.executable, "gpus_per_node": 2}
    asked = {"iterations": 1, "trainer": trainer, "optimiser": {"kl": "k3"}}
    create(load_config("tiny", "anchorloop", asked), "r", "study")
    smi("echo GPU-a")
    with driving("r") as run:
        entry = run.entry(0, "evaluation")
        with pytest.raises(StageFailed, match=r"GPUs: 1, trainer.gpus_per_node: 2"):
            run_stage(run, entry)
    assert starts(stub_home) == []
    smi("echo GPU-a; echo GPU-b; echo GPU-c")
    assert gpus_of(entry.spec) == ["GPU-a", "GPU-b"]
    smi("exit 9")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert gpus_of(entry.spec) == []


def test_a_stage_waits_for_its_gpus_or_is_refused(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "anchorloop")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    trainer = {"backend": "verl", "python": sys.executable, "gpus_per_node": 1}
    asked = {"iterations": 1, "trainer": trainer, "optimiser": {"kl": "k3"}}
    config = load_config("tiny", "anchorloop", asked)
    create(config, "r", "study", on_busy="refuse")
    with holder("GPU-a") as other:
        with driving("r") as run:
            run_stage(run, run.entry(0, "base_model"))  # needs no GPU
            with pytest.raises(StageFailed, match=f"GPU-a is in use by process {other.pid}") as no:
                run_stage(run, run.entry(0, "evaluation"))
        assert no.value.kind == "interrupted"
        create(config, "r", "study", on_busy="wait")
        when_waiting(caplog, other.kill)
        with driving("r") as run:
            run_stage(run, run.entry(0, "evaluation"))
    assert f"i0/evaluation needs GPUs, and GPU-a is in use by process {other.pid}" in caplog.text
    assert starts(stub_home) == ["base_model:0 from 0", "evaluation:0 from 0"]
