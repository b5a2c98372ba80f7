"""A disk that is full, for real: a small tmpfs in a mount namespace of its own."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tasks.runs import create, driving
from tasks.stage import StageFailed, run_stage
from tests.contract.conftest import ROOT
from training.config_load import load_config

NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def test_a_full_disk_is_not_tried_again_by_itself(
    stub_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(load_config("tiny", "anchorloop", {"iterations": 0}), "r", "study")
    monkeypatch.setenv("STUB_FAIL", "base_model:0:disk_full!")
    with driving("r") as run, pytest.raises(StageFailed, match="failed, infra") as failed:
        run_stage(run, run.entry(0, "base_model"))
    assert not failed.value.again
    monkeypatch.setenv("STUB_FAIL", "evaluation:0:infra!")
    with driving("r") as run:
        run_stage(run, run.entry(0, "base_model"))
        with pytest.raises(StageFailed, match="failed, infra") as failed:
            run_stage(run, run.entry(0, "evaluation"))
    assert failed.value.again


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """A command prefix: what follows runs with 1 MB of disk at ``tmp_path/disk``."""
    (tmp_path / "disk").mkdir()
    mount = f'mount -t tmpfs -o size=1m tmpfs {tmp_path / "disk"} && exec "$@"'
    command = [*NAMESPACE, "sh", "-c", mount, "sh"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return command


def on(small_disk: list[str], script: str, *arguments: object) -> str:
    done = subprocess.run(
        [*small_disk, sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_checkpoint_is_refused_before_it_is_begun(small_disk: list[str], tmp_path: Path) -> None:
    said = on(
        small_disk,
        """
        import sys
        from pathlib import Path
        import torch
        from torch import nn
        from training.errors import DiskFullError
        from training.trainers.torch.checkpoint import Checkpoints

        kept = Checkpoints(Path(sys.argv[1]) / "checkpoints")
        model = nn.Linear(200, 500, bias=False)  # 0.4 MB
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        kept.save(1, model, optimiser)
        try:
            kept.save(2, model, optimiser)
        except DiskFullError as error:
            print(error)
        assert [p.name for p in kept.folder.iterdir()] == ["step_1"]
        assert kept.restore(model, optimiser) == 1
        """,
        tmp_path / "disk",
    )
    assert said.startswith("a checkpoint takes 0.4")
    assert "`anchorloop clean` lists what may go" in said


def test_a_stage_whose_disk_runs_full_says_so(small_disk: list[str], tmp_path: Path) -> None:
    """In the middle of a file, where no question in advance helps."""
    said = on(
        small_disk,
        """
        import json, sys, types
        from pathlib import Path
        import torch
        from training.spec import StageSpec
        from training.stages import __main__ as program
        from training.store import Store

        def run(ctx):
            with (ctx.payload / "weights.pt").open("wb") as file:
                torch.save(torch.zeros(1_000_000), file)

        module = types.ModuleType("training.stages.executor")
        module.run = run
        sys.modules[module.__name__] = module
        store = Store(Path(sys.argv[1]))
        spec = StageSpec("executor", 1, 0, {}, {}, {}, "c", {})
        place = store.place(spec.identity)
        place.root.mkdir()
        spec.save(place.spec)
        arguments = ["executor", "--spec", str(place.spec), "--out", str(place.root)]
        assert program.main(arguments) == 1
        assert not place.payload.exists()
        print(place.failure.read_text())
        """,
        tmp_path / "disk",
    )
    failure = json.loads(said)
    assert failure["kind"] == "infra"
    assert failure["again"] is False
    assert failure["message"].startswith("the disk is full (")
    assert "anchorloop clean" in failure["message"]
