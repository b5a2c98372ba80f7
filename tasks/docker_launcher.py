"""The launcher ``docker``: a stage is a container, which outlives a driver that is killed.

A driver that comes back watches the container it finds running. Every call to the engine has a
deadline; an engine that does not answer is an InfraError and never the end of the stage.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from tasks.container import Options, container_name, options, this_machine
from tasks.launchers import STOP_GRACE_S, Job
from tasks.sandbox_containers import BESIDE, remove_beside, start_beside, wanted
from training.errors import ConfigError, InfraError
from training.spec import StageSpec
from training.store import write_atomic

CALL_S = 60.0
"""Deadline of one call to the engine."""
SILENCE_S = 180.0
"""How long the engine may stay silent (an upgrade restarts it) while a stage runs."""
_POLL_S = 0.2
_OVER = ("exited", "dead")

log = logging.getLogger("anchorloop")


class DockerLauncher:
    """Containers of one image on the engine that DOCKER_HOST names, else on this machine's."""

    name = "docker"

    def __init__(self, image: str, mounts: tuple[str, ...] = (), memory: int | None = None) -> None:
        """``image`` is a name, digest or id that the engine has; its entry point is the stage
        program. ``mounts`` are further folders of this machine to be seen read-only; ``memory``
        (bytes) is what the engine's machine has, where it shall not be asked."""
        self._reference, self._folders, self._memory = image, mounts, memory

    def image(self) -> str:
        """Digest of the image; see ``Launcher.image``."""
        try:
            with asking():
                return str(self._client.images.get(self._reference).id)
        except Absent:
            raise ConfigError(
                f"image '{self._reference}' is not on this machine; build it with `docker build "
                "-f training/Dockerfile -t anchorloop-gpu .`, or pull it"
            ) from None

    def adopt(self, job: Job) -> "DockerRunning | None":
        """The container that an earlier driver of this run left; see ``Launcher.adopt``."""
        found = self._find(job)
        if found is None or found.labels.get("anchorloop.run-id") != job.run_id:
            return None
        if found.status in (*_OVER, "created"):
            remove(found)
            return None
        return DockerRunning(found, Path(found.labels["anchorloop.log"]))

    def start(self, job: Job) -> "DockerRunning":
        """Start a container; see ``Launcher.start``."""
        image = self.image()
        spec = StageSpec.load(job.spec)
        left = self._find(job)
        if left is not None and left.status in _OVER:
            remove(left)
        machine = this_machine(self._memory or self._machine_memory())
        settings = wanted(spec, in_cluster=bool(machine.environment.get("RAY_ADDRESS")))
        if settings is None:
            return self._start(job, image, options(job, spec, machine))
        folder = start_beside(job, spec, settings, self._folders)
        try:
            asked = options(job, spec, machine, folder)
            asked.container["labels"][BESIDE] = str(folder)
            return self._start(job, image, asked)
        except BaseException:
            remove_beside(folder)
            raise

    def _start(self, job: Job, image: str, asked: Options) -> "DockerRunning":
        asked.host["mounts"] += [_read_only(folder) for folder in self._folders]
        job.log.parent.mkdir(parents=True, exist_ok=True)
        note = {"image": image, "reference": self._reference, "container": asked.container["name"]}
        write_atomic(job.log.with_name("container.json"), json.dumps(note))
        arguments = [job.stage, "--spec", str(job.spec), "--out", str(job.out)]
        with asking():
            api = self._client.api
            host = {**api.create_host_config(**asked.host), **asked.unmasked}
            made = api.create_container(image, arguments, host_config=host, **asked.container)
            container = self._client.containers.get(made["Id"])
        try:
            with asking():
                container.start()
        except BaseException:
            remove(container)
            raise
        return DockerRunning(container, job.log)

    @cached_property
    def _client(self) -> docker.DockerClient:
        return docker.from_env(timeout=CALL_S)

    def _find(self, job: Job) -> Container | None:
        try:
            with asking():
                return self._client.containers.get(container_name(job))
        except Absent:
            return None

    def _machine_memory(self) -> int:
        with asking():
            return int(self._client.info()["MemTotal"])


class DockerRunning:
    """A stage's container. Its output is copied into ``log`` from the first line on."""

    def __init__(self, container: Container, log: Path) -> None:
        self._container, self.log = container, log
        self.out_of_memory = False
        self._status: int | None = None
        self._silent_since: float | None = None
        self._copier = self._copying(follow=True)

    @property
    def name(self) -> str:
        """Name of the container."""
        return str(self._container.name)

    def wait(self, seconds: float) -> int | None:
        """Wait at most so long; see ``Running.wait``.

        Raises InfraError when the engine stays silent.
        """
        deadline = time.monotonic() + seconds
        while self._look() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self._status

    def stop(self, grace: float = STOP_GRACE_S) -> None:
        """SIGTERM, then SIGKILL, then the container is removed; a warning where that fails."""
        try:
            if self._look() is None:
                with asking():
                    self._container.stop(timeout=max(1, round(grace)))
                self._look()
            self._copier.join(CALL_S)
            if not self._copier.is_alive():
                # An engine that restarted ended the stream: the reason of a failure may be missing.
                self._copying(follow=False).join(CALL_S)
            remove(self._container)
        except InfraError as error:
            log.warning("container %s may still be there: %s", self.name, error)

    def _look(self) -> int | None:
        """The exit status as soon as there is one."""
        if self._status is not None:
            return self._status
        try:
            with asking():
                self._container.reload()
        except Absent:
            self._status = -9  # somebody removed it by force
        except InfraError:
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() - self._silent_since > SILENCE_S:
                raise
        else:
            self._silent_since = None
            state = self._container.attrs["State"]
            if state["Status"] in _OVER:
                code = int(state["ExitCode"])
                self._status = 128 - code if 128 < code < 160 else code
                self.out_of_memory = bool(state["OOMKilled"])
        return self._status

    def _copying(self, follow: bool) -> threading.Thread:
        """Copy in the background: a stream from the engine has no deadline of its own."""
        copier = threading.Thread(target=self._copy, args=(follow,), daemon=True)
        copier.start()
        return copier

    def _copy(self, follow: bool) -> None:
        """Write the log anew and follow the output, or else add to the log what it lacks."""
        with contextlib.suppress(DockerException, RequestException, HTTPError, OSError):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("wb" if follow else "ab") as file:
                known = file.tell()
                for part in self._container.logs(stream=True, follow=follow):
                    file.write(part[known:])
                    file.flush()
                    known = max(0, known - len(part))


class Absent(InfraError):
    """The engine does not know the container or image."""


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Turn what the SDK raises into our own failures. Raises Absent, ConfigError, InfraError."""
    try:
        yield
    except (ImageNotFound, NotFound) as error:
        if "no such" not in str(error.explanation).lower():
            raise InfraError(f"the Docker engine refused: {error.explanation}") from error
        raise Absent from error
    except APIError as error:
        said = str(error.explanation)
        if "already in use" in said:
            raise InfraError(
                f"another run's container computes this stage; wait for it or stop it ({said})"
            ) from error
        if "device driver" in said:
            raise ConfigError(
                f"the Docker engine has no GPUs ({said}); install the NVIDIA container toolkit"
            ) from error
        raise InfraError(f"the Docker engine refused: {said}") from error
    except (DockerException, RequestException) as error:
        raise InfraError(
            f"no Docker engine answers ({type(error).__name__}); start it, or set DOCKER_HOST"
        ) from error


def remove(container: Container) -> None:
    """Remove a stage's container, and the supervisors beside it."""
    with contextlib.suppress(Absent), asking():
        container.remove(force=True, v=True)
    if BESIDE in container.labels:
        remove_beside(Path(container.labels[BESIDE]))


def _read_only(folder: str) -> docker.types.Mount:
    return docker.types.Mount(folder, folder, "bind", read_only=True)
