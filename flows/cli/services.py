"""``anchorloop up``, ``down`` and ``worker``: the servers of this folder, or work for a team's."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import typer

from flows.cli.errors import UserError


def up(
    worker: Annotated[bool, typer.Option(help="Also start a worker and deploy the flows.")] = True,
) -> None:
    """Start Prefect, MLflow and a worker on free loopback ports, and print the addresses."""
    from flows.deploy import deploy, watch_over
    from flows.services import ServiceError, Services
    from tasks.home import home

    services = Services(home())
    try:
        idle = services.find("worker") is None
        prefect, mlflow = services.start_all()
        os.environ.update(services.environment())  # the server's login, before Prefect reads it
        services.keep_heartbeat(watch_over(f"{prefect.url}/api", idle))
        if worker:
            deploy(services.environment())
            services.start_worker()
    except (ServiceError, ValueError) as error:
        raise UserError(str(error)) from None
    print(f"Prefect  {prefect.url}")
    print(f"MLflow   {mlflow.url}")
    if worker:
        print("worker   runs the deployments of prefect.yaml, one run at a time")


def worker() -> None:
    """Work for the Prefect server that PREFECT_API_URL names: register the flows, run them here.

    Where PREFECT_WORKER_WEBSERVER_PORT is set, its health is told on that loopback port.
    """
    from flows.deploy import deploy, watch_over
    from flows.services import ServiceError, Services, worker_command
    from tasks.home import HEARTBEAT, home

    server = os.environ.get("PREFECT_API_URL")
    if not server:
        raise UserError(
            "PREFECT_API_URL is not set; set it to the team's server, such as "
            "http://127.0.0.1:4200/api, or use `anchorloop up` for servers of your own"
        )
    own = {**Services(home()).environment(), "PREFECT_API_URL": server}
    try:
        deploy(own)
        own[HEARTBEAT] = f"{watch_over(server):g}"
    except (ServiceError, ValueError) as error:
        raise UserError(str(error)) from None
    command = worker_command(socket.gethostname())
    if os.environ.get("PREFECT_WORKER_WEBSERVER_PORT"):
        own["PREFECT_WORKER_WEBSERVER_HOST"] = "127.0.0.1"
        command.append("--with-healthcheck")
    os.execve(command[0], command, {**os.environ, **own})


def down() -> None:
    """End exactly what `up` (or a killed `run`) started here."""
    from flows.services import Services
    from tasks.home import home

    services = Services(home())
    ended, left = services.stop_all()
    print("ended: " + (", ".join(ended) if ended else "nothing was running"))
    if left:
        print("a run still uses the Prefect server, which ends with it")
