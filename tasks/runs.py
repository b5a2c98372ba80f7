"""A run: one experiment under a name, in a folder that remembers what it was asked and has done.

``run.json`` holds the settings, ``config.yaml`` the resolved configuration, ``plan.json`` the
identity of every stage, ``stages.jsonl`` what ran; ``summary.json`` is its result.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import yaml

from tasks.home import Home, home
from tasks.launchers import Launcher, launcher
from tasks.tracking import Tracker
from training.config import ExperimentConfig
from training.errors import ConfigError
from training.plan import PlanEntry, plan
from training.spec import StageSpec, canonical_json, differences
from training.store import Store, write_atomic


class RunError(RuntimeError):
    """A run cannot be opened; one sentence says why and what to do."""


@dataclass(frozen=True)
class RunSettings:
    """What was asked beside the configuration; none of it changes a result."""

    name: str
    uid: str
    study: str
    tracking_uri: str
    launcher: str = "local"
    image: str | None = None
    """Name, digest or id of the stages' container image; None where the launcher has its own."""
    stage_hours: float = 72.0


class Run:
    """An open run. Only one process drives a run at a time."""

    def __init__(self, place: Home, settings: RunSettings, config: ExperimentConfig) -> None:
        self.home, self.settings, self.config = place, settings, config
        self.folder = place.run(settings.name)
        self.store = Store(place.store)
        self.launcher: Launcher = launcher(settings.launcher, settings.image)
        self.entries: list[PlanEntry] = plan(config)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.settings.name

    @cached_property
    def tracker(self) -> Tracker:
        """Where the run reports to MLflow."""
        own = self.settings.tracking_uri == self.home.tracking_uri
        return Tracker(
            self.folder / "tracking",
            self.settings.tracking_uri,
            self.settings.study,
            self.settings.uid,
            self.home.tracking_artifacts if own else None,
        )

    @cached_property
    def config_hash(self) -> str:
        """Twelve hex digits of the resolved configuration."""
        return _short_hash(self.config.model_dump(mode="json"))

    @cached_property
    def code_hash(self) -> str:
        """Twelve hex digits of the code of all stages."""
        return _short_hash(sorted({entry.spec.code for entry in self.entries}))

    def tracking_address(self, part: str) -> str | None:
        """Page of a part in the MLflow server, where one is known."""
        uri = self.settings.tracking_uri
        server = uri if uri.startswith("http") else os.environ.get("ANCHORLOOP_MLFLOW_URL")
        place = self.tracker.address(part)
        return f"{server}/#/experiments/{place}" if server and place else None

    def reused(self, iteration: int) -> list[str]:
        """Stages of an iteration that this run found done, whoever had computed them."""
        first: dict[str, bool] = {}
        for outcome in self.outcomes(iteration):
            first.setdefault(outcome["stage"], outcome["reused"])
        return [stage for stage, reused in first.items() if reused]

    def entry(self, iteration: int, stage: str) -> PlanEntry:
        """The plan's entry. Raises RunError where the plan has no such stage."""
        for entry in self.entries:
            if (entry.spec.iteration, entry.spec.stage) == (iteration, stage):
                return entry
        raise RunError(f"run '{self.name}' has no stage '{stage}' in iteration {iteration}")

    def iteration(self, iteration: int) -> list[PlanEntry]:
        """The stages of one iteration, in order."""
        return [entry for entry in self.entries if entry.spec.iteration == iteration]

    def record(self, outcome: dict[str, Any]) -> None:
        """Remember what became of a stage (one line of stages.jsonl)."""
        with (self.folder / "stages.jsonl").open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(outcome) + "\n")

    def outcomes(self, iteration: int) -> list[dict[str, Any]]:
        """What was recorded so far of an iteration's stages, in order."""
        planned = {entry.identity for entry in self.iteration(iteration)}
        lines = read_lines(self.folder / "stages.jsonl")
        return [line for line in lines if line["identity"] in planned]

    def check_plan(self) -> None:
        """Compare with the plan this run began with, or note it at its first start.

        Raises RunError naming what changed: code, libraries or files of a stage.
        """
        path = self.folder / "plan.json"
        now = {entry.name: spec_record(entry.spec) for entry in self.entries}
        if not path.exists():
            write_atomic(path, json.dumps(now, indent=1, sort_keys=True))
            return
        began = json.loads(path.read_text(encoding="utf-8"))
        changed = {
            name: sorted(
                key
                for key in ("config", "code", "libraries", "files", "seed")
                if began.get(name, {}).get(key) != now[name][key]
            )
            for name in now
        }
        changed = {name: keys for name, keys in changed.items() if keys}
        if changed:
            what = "; ".join(f"{', '.join(keys)} of {name}" for name, keys in changed.items())
            raise RunError(
                f"run '{self.name}' began with another version ({what[:400]} changed); start a "
                f"run of another --name, or, where the change cannot alter results, "
                f"`anchorloop adopt STAGE --run {self.name}`"
            )


def spec_record(spec: StageSpec) -> dict[str, Any]:
    """A spec as plan.json holds it."""
    return dict(json.loads(json.dumps(asdict(spec))))


def create(
    config: ExperimentConfig,
    name: str,
    study: str,
    tracking_uri: str | None = None,
    stage_hours: float = 72.0,
    where: str | None = None,
    image: str | None = None,
) -> RunSettings:
    """Make the folder of a new run, or check that an existing one was asked the same.

    ``where`` is the launcher (None: that of the existing run, else ``local``), ``image`` its
    container image. Raises RunError, with the difference, when it was asked something else, and
    for a launcher that does not exist.
    """
    place = home()
    try:
        folder = place.run(name)
    except ValueError as error:
        raise RunError(str(error)) from None
    asked = config.model_dump(mode="json")
    if (folder / "run.json").exists():
        settings = read_settings(folder)
        stored = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        changed = differences(stored, asked)
        if changed:
            raise RunError(
                f"run '{name}' exists with another configuration ({'; '.join(changed[:8])}); "
                "give the new one another --name"
            )
        settings = replace(
            settings, tracking_uri=tracking_uri or settings.tracking_uri, stage_hours=stage_hours
        )
        if where or image:
            settings = replace(settings, launcher=where or settings.launcher, image=image)
        _check_launcher(settings)
    else:
        uri = tracking_uri or place.tracking_uri
        settings = RunSettings(
            name, uuid.uuid4().hex, study, uri, where or "local", image, stage_hours
        )
        _check_launcher(settings)
        folder.mkdir(mode=0o700, exist_ok=True)
        text = yaml.safe_dump(asked, sort_keys=False, allow_unicode=True)
        write_atomic(folder / "config.yaml", text)
    write_atomic(folder / "run.json", json.dumps(asdict(settings), indent=1))
    return settings


def _check_launcher(settings: RunSettings) -> None:
    try:
        launcher(settings.launcher, settings.image)
    except ValueError as error:
        raise RunError(str(error)) from None


def read_settings(folder: Path) -> RunSettings:
    """The settings of an existing run folder. Raises RunError when it is none."""
    try:
        return RunSettings(**json.loads((folder / "run.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise RunError(
            f"there is no run '{folder.name}' here; `anchorloop status` lists what there is"
        ) from None


_driven: dict[Path, Run] = {}


@contextlib.contextmanager
def driving(name: str, check: bool = True) -> Iterator[Run]:
    """Open a run and drive it alone; nested uses in one process share the open run.

    ``check`` compares with the plan the run began with (``Run.check_plan``). Raises RunError when
    it does not exist, is driven by another process, or its code changed.
    """
    place = home()
    folder = place.run(name)
    if folder in _driven:
        yield _driven[folder]
        return
    settings = read_settings(folder)
    with (folder / "driver.lock").open("a+") as handle:
        _take(handle, name)
        try:
            stored = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
            run = Run(place, settings, ExperimentConfig.model_validate(stored))
        except (ConfigError, ValueError) as error:
            raise RunError(f"run '{name}': {error}") from error
        if check:
            run.check_plan()
        _driven[folder] = run
        try:
            yield run
        finally:
            del _driven[folder]
            if "tracker" in vars(run):
                run.tracker.close()


def _short_hash(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:12]


def driver(folder: Path) -> int | None:
    """Process that drives the run of this folder, or None."""
    path = folder / "driver.lock"
    if not path.exists():
        return None
    with path.open("r+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = handle.read().strip()
            return int(text) if text.isdigit() else 0
    return None


def _take(handle: IO[str], name: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        holder = handle.read().strip() or "another"
        raise RunError(
            f"run '{name}' is already driven by process {holder}; wait for it or stop it"
        ) from None
    handle.seek(0)
    handle.truncate()
    handle.write(str(os.getpid()))
    handle.flush()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Records of a JSON-lines file; a line that a crash cut short is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            found.append(dict(json.loads(line)))
    return found
