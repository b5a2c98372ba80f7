"""The output of a stage's container in its log, where the engine or the disk goes away."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3.exceptions import ProtocolError

from tasks.docker_launcher import DockerRunning

PARTS = [b"step 1\n", b"step 2\nstep", b" 3\n", b"out of disk\n"]


class Ended:
    """A container that ended with status 1; its engine ended the first stream after some parts."""

    name = "stage"

    def __init__(self, *, first: int, breaks: bool) -> None:
        self.attrs = {"State": {"Status": "exited", "ExitCode": 1, "OOMKilled": False}}
        self.labels: dict[str, str] = {}
        self.removed = False
        self._first, self._breaks = first, breaks

    def reload(self) -> None:
        """It stays what it is."""

    def logs(self, *, stream: bool, follow: bool) -> Iterator[bytes]:
        assert stream
        assert not self.removed
        yield from PARTS[: self._first] if follow else [b"".join(PARTS[:2]), *PARTS[2:]]
        if follow and self._breaks:
            raise ProtocolError("the engine went away")

    def remove(self, **_: object) -> None:
        self.removed = True


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("first", [0, 1, 2, 3, 4])
def test_what_a_broken_stream_left_out_is_copied_before_the_container_goes(
    tmp_path: Path, first: int, breaks: bool
) -> None:
    container, log = Ended(first=first, breaks=breaks), tmp_path / "logs" / "output.log"
    log.parent.mkdir()
    log.write_text("of an earlier container\n")
    running = DockerRunning(container, log)  # type: ignore[arg-type]
    assert running.wait(10) == 1
    running.stop()
    assert log.read_bytes() == b"".join(PARTS)
    assert container.removed


def test_a_full_disk_ends_the_copy_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    container = Ended(first=4, breaks=False)
    DockerRunning(container, Path("/dev/full")).stop()  # type: ignore[arg-type]
    assert raised == []
    assert container.removed
