"""A really small run with the real stages, and what must be equal after every fault.

The undisturbed run is made once a session. A fault gets a copy of it with some stages missing, so
that only the stage in question is computed again.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.flow_world import ROOT, World, history, mlflow_runs
from training.store import Store

SMALL = {
    "model.tiny.warm_start_steps": 240,
    "model.tiny.warm_start_batch": 32,
    "model.tiny.warm_start_learning_rate": 5e-3,
    "rollout.group_size": 4,
    "rollout.temperature": 0.3,
    "rollout.max_turns": 3,
    "rollout.max_turn_tokens": 32,
    "curriculum.steps": 2,
    "curriculum.batch_size": 6,
    "curriculum.max_new_tokens": 40,
    "executor.steps": 4,
    "optimiser.learning_rate": 1e-3,
    "evaluation.limit": 8,
    "evaluation.samples": 2,
    "gate.min_mean_at_k": 0,
    "gate.max_top_answer_share": 1,
    "checkpoints.every": 1,
    "sandbox.workers": 1,
}
ASSIGNMENTS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
RUN = ("run", "--name", "r", "--iterations", "1", *ASSIGNMENTS)
STAGES = (
    "i0/base_model",
    "i0/evaluation",
    "i1/anchor",
    "i1/curriculum",
    "i1/task_pool",
    "i1/anchor_cache",
    "i1/executor",
    "i1/evaluation",
)
_SITE = "from tests.fault import injected\n\ninjected.arm_by_environment()\n"


class FaultWorld(World):
    """A root whose processes listen to ``FAULT`` (``tests.fault.injected``)."""

    def __init__(self, root: Path, prefect: str | None = None) -> None:
        """``prefect`` is the address of a server to report to; without, each run starts one."""
        super().__init__(root, stubs=False)
        site = root / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITE)
        self.environment["PYTHONPATH"] = f"{site}:{ROOT}"
        if prefect:
            self.environment["PREFECT_API_URL"] = f"{prefect}/api"

    @property
    def store(self) -> Store:
        return Store(self.root / ".anchorloop" / "store")

    def place(self, entry: str) -> Path:
        """Folder of a stage, such as ``i1/executor``."""
        return self.store.place(self.identities[entry]).root

    @property
    def identities(self) -> dict[str, str]:
        """Identity of each stage that the run has finished."""
        path = self.root / "identities.json"
        if path.exists():
            return dict(json.loads(path.read_text()))
        lines = [json.loads(line) for line in self.stages.read_text().splitlines()]
        return {f"i{line['iteration']}/{line['stage']}": line["identity"] for line in lines}

    @property
    def stages(self) -> Path:
        return self.root / "runs" / "r" / "stages.jsonl"

    def copy(self, root: Path, prefect: str | None, without: Sequence[str] = ()) -> "FaultWorld":
        """A new root with the artifacts of this one, except those of the stages ``without``."""
        made = FaultWorld(root, prefect)
        (root / "identities.json").write_text(json.dumps(self.identities))
        for entry, identity in self.identities.items():
            source, place = self.store.place(identity), made.store.place(identity)
            place.root.mkdir()
            shutil.copy2(source.spec, place.spec)
            if entry not in without:
                shutil.copytree(source.artifact, place.artifact)
                place.work.mkdir()
                shutil.copy2(source.root / "attempt", place.root)
                if (source.work / "metrics.jsonl").exists():
                    shutil.copy2(source.work / "metrics.jsonl", place.work)
        return made

    def attempts(self, entry: str) -> int:
        return self.store.attempt(self.identities[entry])

    def metrics(self, entry: str) -> list[dict[str, Any]]:
        """Lines of a stage's metrics, without times."""
        path = self.place(entry) / "work" / "metrics.jsonl"
        return [untimed(json.loads(line)) for line in path.read_text().splitlines()]

    def failure(self, entry: str) -> dict[str, Any]:
        return dict(json.loads((self.place(entry) / "work" / "failure.json").read_text()))


def waits(file: Path) -> bool:
    """Whether a stage stands still until the file is there (fault ``wait_in_step``)."""
    return Path(f"{file}.here").exists()


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers without those that measure time, machine or the number of tries."""
    measured = ("seconds", "per_second", "restarts", "retries", "canaries")
    return {
        key: value
        for key, value in values.items()
        if not any(word in key for word in measured) and not key.startswith("sandbox/")
    }


def same_stage(world: FaultWorld, reference: FaultWorld, entry: str) -> None:
    """A stage's payload (weights, ledgers, responses), result and metrics are those expected."""
    identity = reference.identities[entry]
    mine, expected = world.store.verify(identity, full=True), reference.store.verify(identity)
    assert mine is not None, f"{entry} is not there"
    assert expected is not None
    assert mine.payload_sha256 == expected.payload_sha256, entry
    results = [untimed(w.store.result(identity)["metrics"]) for w in (world, reference)]
    assert results[0] == results[1], entry
    if (reference.place(entry) / "work" / "metrics.jsonl").exists():
        assert world.metrics(entry) == reference.metrics(entry), entry


def same_run(world: FaultWorld, reference: FaultWorld) -> None:
    """Every artifact, the summary's numbers and the points in MLflow are those expected."""
    for entry in STAGES:
        same_stage(world, reference, entry)
    rows = [[untimed(row) for row in w.summary("r")["iterations"]] for w in (world, reference)]
    assert rows[0] == rows[1]
    assert tracked(world.root) == tracked(reference.root)


def tracked(root: Path) -> dict[str, Any]:
    """Status, and every point of every metric of each MLflow run, times left out."""
    found: dict[str, Any] = {}
    for name, run in mlflow_runs(root).items():
        found[name] = run.info.status
        for key in untimed(run.data.metrics):
            found[f"{name} {key}"] = history(root, run, key)
    return found
