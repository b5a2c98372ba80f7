"""Make the work pool: ``python -m flows.work_pool NAME``, on the server of PREFECT_API_URL.

Prefect's own command for it has the server ask GitHub for kinds of workers first.
"""

import sys

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.workers.process import ProcessWorker


def make_pool(name: str) -> None:
    """Make a pool for process workers, or set an existing one right."""
    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type=ProcessWorker.type, base_job_template=template)
    with get_client(sync_client=True) as client:
        client.create_work_pool(pool, overwrite=True)


if __name__ == "__main__":
    make_pool(sys.argv[1])
