"""A PostgreSQL server of the tests' own: a fresh cluster on a loopback port, gone afterwards."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

PASSWORD = "canary/database@1"  # awkward in an address, as generated passwords are
ESCAPED = "canary%2Fdatabase%401"


def _program(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        raise RuntimeError(f"no {name}: install PostgreSQL (Debian: postgresql)")
    return found


@contextlib.contextmanager
def postgres(databases: tuple[str, ...]) -> Iterator[str]:
    """Start a server with these databases; yields ``user:password@host:port``, escaped."""
    folder = Path(tempfile.mkdtemp(prefix="anchorloop-postgres-"))
    # The server refuses to run as root; elsewhere it runs as whoever runs the tests.
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    user = user if os.getuid() == 0 else []
    (folder / "password").write_text(PASSWORD)
    if user:
        for path in (folder, folder / "password"):
            shutil.chown(path, "postgres", "postgres")

    def call(name: str, *arguments: str) -> None:
        command = [*user, _program(name), "-D", str(folder / "data"), *arguments]
        subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            timeout=120,
        )  # fmt: skip

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    try:
        password = f"--pwfile={folder / 'password'}"
        call("initdb", "-U", "anchorloop", "--auth=scram-sha-256", password)
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder} -c fsync=off"
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            where = f"anchorloop:{ESCAPED}@127.0.0.1:{port}"
            for name in databases:
                rows(f"postgresql://{where}/postgres", f"CREATE DATABASE {name}")
            yield where
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows(address: str, query: str) -> list[tuple[object, ...]]:
    """Run one statement; its rows, if it has any."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(query)
        return list(cursor.fetchall()) if cursor.description else []


def dump(address: str) -> bytes:
    """Everything that a database holds, as text."""
    command = [_program("pg_dump"), "--dbname", address]
    return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout
