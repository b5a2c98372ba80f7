"""A run: one experiment under a name, in a folder that remembers what it was asked and has done.

``run.json`` holds the settings, ``config.yaml`` the resolved configuration, ``plan.json`` the
identity of every stage, ``stages.jsonl`` what ran; ``summary.json`` is its result.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import yaml
from pydantic import ValidationError

from tasks.home import Home, home
from tasks.launchers import Launcher, default_image, default_launcher, launcher
from tasks.secrets import has_secret, redact
from tasks.todo import must_run
from tasks.tracking import Tracker
from training.config import ExperimentConfig
from training.config_load import explain
from training.errors import ConfigError
from training.locking import is_held, try_exclusive
from training.plan import PlanEntry, plan
from training.spec import StageSpec, canonical_json, differences
from training.store import Store, append_line, write_atomic

log = logging.getLogger("anchorloop")

OnBusy = Literal["wait", "refuse"]

LOOK_S = 0.5
"""Time between looks at a lock that somebody holds."""


class RunError(RuntimeError):
    """A run cannot be opened; one sentence says why and what to do."""


class RunBusy(RunError):
    """Another process drives the run."""


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
    on_busy: OnBusy = "wait"
    """``wait`` for whoever drives the run or computes a stage, or ``refuse`` to."""
    forked_from: str | None = None
    """Run whose configuration this one began with."""

    @property
    def stage_image(self) -> str | None:
        """Name of the image that stages run in, None where they run on this machine."""
        return default_image(self.image) if self.launcher == "docker" else None


class Run:
    """An open run. Only one process drives a run at a time."""

    def __init__(self, place: Home, settings: RunSettings, config: ExperimentConfig) -> None:
        self.home, self.settings, self.config = place, settings, config
        self.folder = place.run(settings.name)
        self.store = Store(place.store)
        self.launcher: Launcher = launcher(settings.launcher, settings.image)
        self.entries: list[PlanEntry] = plan(config, settings.stage_image)

    @property
    def name(self) -> str:
        """The run's name."""
        return self.settings.name

    @cached_property
    def tracker(self) -> Tracker:
        """Where the run reports to MLflow."""
        own = self.settings.tracking_uri == redact(self.home.tracking_uri)
        return Tracker(
            self.folder / "tracking",
            self.home.tracking_uri if own else self.settings.tracking_uri,
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

    def must_run(self) -> set[str]:
        """Identities of the stages that are not done, or lack what a stage to come needs."""
        return must_run([(e.identity, e.spec) for e in self.entries], self.store.found)

    def record(self, outcome: dict[str, Any]) -> None:
        """Remember what became of a stage (one line of stages.jsonl). Raises DiskFullError."""
        with (self.folder / "stages.jsonl").open("ab", buffering=0) as handle:
            append_line(handle, json.dumps(outcome).encode() + b"\n")
        self._remember(outcome["identity"])

    def outcomes(self, iteration: int) -> list[dict[str, Any]]:
        """What was recorded so far of an iteration's stages, in order."""
        planned = {entry.identity for entry in self.iteration(iteration)}
        lines = read_lines(self.folder / "stages.jsonl")
        return [line for line in lines if line["identity"] in planned]

    def announce_changes(self) -> None:
        """Say which stages are no longer those this run began with, and so are computed again.

        plan.json remembers each stage as it was last computed here, so that ``adopt`` can keep an
        old artifact until a new one has taken its place.
        """
        if not self._plan_file.exists():
            now = {entry.name: spec_record(entry.spec) for entry in self.entries}
            write_atomic(self._plan_file, json.dumps(now, indent=1, sort_keys=True))
            return
        began = self._began()
        kinds = ("config", "code", "libraries", "files", "seed")
        changed = []
        for entry in self.entries:
            was, now = began.get(entry.name, {}), spec_record(entry.spec)
            different = [kind for kind in kinds if was.get(kind) != now[kind]]
            if different:
                changed.append(f"{' and '.join(different)} of {entry.name}")
        if changed:
            log.warning(
                "changed since run '%s' began: %s; these stages and all behind them are computed "
                "again. Where the change cannot alter results, stop and keep their artifacts with "
                "`anchorloop adopt STAGE --run %s`",
                self.name,
                "; ".join(changed)[:600],
                self.name,
            )

    @property
    def _plan_file(self) -> Path:
        return self.folder / "plan.json"

    def _began(self) -> dict[str, Any]:
        return dict(json.loads(self._plan_file.read_text(encoding="utf-8")))

    def _remember(self, identity: str) -> None:
        """From now on plan.json knows the stage of this identity as it is now."""
        known = [entry for entry in self.entries if entry.identity == identity]
        if not known or not self._plan_file.exists():
            return
        began = self._began()
        now = spec_record(known[0].spec)
        if began.get(known[0].name) != now:
            began[known[0].name] = now
            write_atomic(self._plan_file, json.dumps(began, indent=1, sort_keys=True))


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
    on_busy: OnBusy = "wait",
    forked_from: str | None = None,
) -> RunSettings:
    """Make the folder of a new run, or check that an existing one was asked the same.

    ``where`` is the launcher (None: that of the existing run, else the default one), ``image`` its
    container image; ``tracking_uri`` None means ``MLFLOW_TRACKING_URI``, else the root's own
    store; ``on_busy`` and ``forked_from`` are those of RunSettings. Raises RunError, with the
    difference, when it was asked something else, and for a launcher that does not exist or an
    address that carries a password.
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
                f"`anchorloop fork {name} --name NEW --set KEY=VALUE` makes a new run that shares "
                "what is equal"
            )
        settings = replace(
            settings,
            tracking_uri=tracking_uri or settings.tracking_uri,
            stage_hours=stage_hours,
            on_busy=on_busy,
        )
        if where or image:
            settings = replace(settings, launcher=where or settings.launcher, image=image)
        _check_launcher(settings)
        _check_tracking(settings, place)
    else:
        given = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        uri = given or redact(place.tracking_uri)
        settings = RunSettings(
            name,
            uuid.uuid4().hex,
            study,
            uri,
            where or default_launcher(),
            image,
            stage_hours,
            on_busy,
            forked_from,
        )
        _check_launcher(settings)
        _check_tracking(settings, place)
        folder.mkdir(mode=0o700, exist_ok=True)
        place.announce()
        text = yaml.safe_dump(asked, sort_keys=False, allow_unicode=True)
        write_atomic(folder / "config.yaml", text)
    write_atomic(folder / "run.json", json.dumps(asdict(settings), indent=1))
    return settings


def _check_launcher(settings: RunSettings) -> None:
    try:
        launcher(settings.launcher, settings.image)
    except ValueError as error:
        raise RunError(str(error)) from None


def _check_tracking(settings: RunSettings, place: Home) -> None:
    """Passwords are neither stored nor found in a command line: they come by the environment."""
    uri, shown = settings.tracking_uri, redact(settings.tracking_uri)
    if has_secret(uri):
        raise RunError(
            f"tracking address {shown} carries a password; give a server's login by "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD or by MLFLOW_TRACKING_TOKEN, "
            "and a database by MLFLOW_BACKEND_STORE_URI"
        )
    if ":***@" in uri and uri != redact(place.tracking_uri):
        raise RunError(
            f"run '{settings.name}' reports to {uri}, whose password is not stored; set "
            "MLFLOW_BACKEND_STORE_URI as when it began, or name another --tracking-uri"
        )


def read_settings(folder: Path) -> RunSettings:
    """The settings of an existing run folder. Raises RunError when it is none or unreadable."""
    try:
        return RunSettings(**json.loads((folder / "run.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RunError(
            f"there is no run '{folder.name}' here; `anchorloop status` lists what there is"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise RunError(unreadable(folder, "run.json", error)) from None


def unreadable(folder: Path, name: str, error: Exception) -> str:
    """What to say of a file of a run folder that is there and cannot be read."""
    return (
        f"{folder / name} cannot be read ({error}); use the version of anchorloop that wrote it, "
        "restore it, or delete the run's folder"
    )


def stored_config(folder: Path) -> ExperimentConfig:
    """The resolved configuration of a run folder.

    Raises RunError when it cannot be read, ConfigError when it no longer fits.
    """
    try:
        stored = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RunError(unreadable(folder, "config.yaml", error)) from None
    try:
        return ExperimentConfig.model_validate(stored)
    except ValidationError as error:
        raise ConfigError(explain(error)) from None


_driven: dict[Path, Run] = {}


@contextlib.contextmanager
def driving(name: str, announce: bool = True, on_busy: OnBusy | None = None) -> Iterator[Run]:
    """Open a run and drive it alone; nested uses in one process share the open run.

    While another process drives it, this one waits or is refused, as ``on_busy`` says, or else the
    run's own. ``announce`` says what changed since the run began (``Run.announce_changes``).
    Raises RunBusy when it is refused, RunError when the run does not exist or its configuration no
    longer fits.
    """
    place = home()
    folder = place.run(name)
    if folder in _driven:
        yield _driven[folder]
        return
    settings = read_settings(folder)
    with (folder / "driver.lock").open("a+") as handle:
        _take(handle, name, on_busy or settings.on_busy)
        try:
            run = Run(place, settings, stored_config(folder))
        except (ConfigError, ValueError) as error:
            raise RunError(f"run '{name}': {error}") from error
        if announce:
            run.announce_changes()
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
        if not is_held(handle.fileno()):
            return None
        text = handle.read().strip()
        return int(text) if text.isdigit() else 0


def _take(handle: IO[str], name: str, on_busy: str) -> None:
    said = ""
    while not try_exclusive(handle.fileno()):
        handle.seek(0)
        holder = handle.read().strip() or "another"
        busy = f"run '{name}' is already driven by process {holder}"
        if on_busy == "refuse":
            raise RunBusy(f"{busy}; wait for it or stop it")
        if busy != said:
            log.info("%s; waiting for it", busy)
            said = busy
        time.sleep(LOOK_S)
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
