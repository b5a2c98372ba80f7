"""GPU locks between real processes. The ids are names here: no GPU is needed to lock one."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tasks.runs import create, driving
from tasks.stage import StageFailed, run_stage
from tests.contract.conftest import ROOT, starts, when_waiting
from training import gpu_locks
from training.config_load import load_config
from training.errors import InfraError
from training.gpu_locks import gpu_in_use, holding_gpus, visible_gpus

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


def test_numbers_are_looked_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho GPU-a; echo GPU-b; echo GPU-c\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(2) == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0,MIG-x")
    assert visible_gpus(8) == ["GPU-c", "GPU-a", "MIG-x"]


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
