"""``anchorloop up`` and ``anchorloop down``: the servers and the worker of this folder."""

from __future__ import annotations

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
        prefect, mlflow = services.start_all()
        services.keep_heartbeat(watch_over(f"{prefect.url}/api"))
        if worker:
            deploy(services.environment())
            services.start_worker()
    except (ServiceError, ValueError) as error:
        raise UserError(str(error)) from None
    print(f"Prefect  {prefect.url}")
    print(f"MLflow   {mlflow.url}")
    if worker:
        print("worker   runs the deployments of prefect.yaml, one run at a time")


def down() -> None:
    """End exactly what `up` (or a killed `run`) started here."""
    from flows.services import Services
    from tasks.home import home

    services = Services(home())
    ended, left = services.stop_all()
    print("ended: " + (", ".join(ended) if ended else "nothing was running"))
    if left:
        print("a run still uses the Prefect server, which ends with it")
