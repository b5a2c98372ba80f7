"""compose.yaml: pinned, on loopback, healthy in order, and without a single secret."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SECRET = re.compile(r"PASSWORD|AUTH_STRING|SECRET|TOKEN")
EXAMPLE = dict(
    line.split("=", 1)
    for line in (ROOT / ".env.example").read_text().splitlines()
    if "=" in line and not line.startswith("# ")
)


def test_the_services_are_those_of_a_team() -> None:
    assert set(SERVICES) == {"postgres", "prefect", "mlflow", "worker"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_healthy_and_starts_again(name: str) -> None:
    service = SERVICES[name]
    assert re.search(r":\d+\.\d+[\w.-]*$", service["image"]), service["image"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"
    for needed in service.get("depends_on", {}).values():
        assert needed == {"condition": "service_healthy"}


def test_base_image_of_the_driver_is_pinned() -> None:
    lines = (ROOT / "flows" / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("FROM")]
    assert re.fullmatch(r"FROM python:3\.11\.\d+-slim-\w+", base)


def test_published_ports_are_on_loopback_unless_asked_otherwise() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(published) == 2
    for port in published:
        assert port.startswith("${BIND:-127.0.0.1}:")
    assert not any("network_mode" in service for service in SERVICES.values())


def test_secrets_are_asked_for_and_never_given() -> None:
    asked = set()
    for service in SERVICES.values():
        assert "env_file" not in service, "each service has only the secrets it needs"
        for key, value in service["environment"].items():
            assert "@" not in value or re.search(r"//\w+@", value), f"{key} holds a password"
            if SECRET.search(key):
                found = re.fullmatch(r"\$\{(\w+):\?set it in \.env\}", value)
                assert found, f"{key} has a value in the file"
                asked.add(found[1])
    assert asked == {name for name in EXAMPLE if not name.startswith("#")}
    assert not [name for name, value in EXAMPLE.items() if value and not name.startswith("#")]
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()
    assert ".env" in (ROOT / ".dockerignore").read_text().splitlines()


def test_what_outlives_a_container_is_in_a_volume() -> None:
    for name in ("postgres", "mlflow", "worker"):
        volume = SERVICES[name]["volumes"][0].split(":")[0]
        assert volume in COMPOSE["volumes"]
    assert (ROOT / "flows" / "databases.sql").is_file()


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose here")
def test_compose_itself_takes_the_file_and_refuses_it_without_secrets(tmp_path: Path) -> None:
    for value, accepted in (("x", True), ("", False)):
        settings = tmp_path / "settings"
        settings.write_text("".join(f"{n}={value}\n" for n in EXAMPLE if not n.startswith("#")))
        done = subprocess.run(
            ["docker-compose", "--env-file", str(settings), "-f", str(ROOT / "compose.yaml"),
             "config"],
            env={"PATH": os.environ["PATH"]}, cwd=tmp_path, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert (done.returncode == 0) is accepted, done.stderr
    assert "set it in .env" in done.stderr
