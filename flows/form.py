"""The run form of a deployment: what Prefect shows and enforces, from the flow's parameter schema.

Prefect describes an optional parameter as "this type or None", which its form shows as a switch
that stands on None. Here such a parameter is a plain field that may be left empty. Prefect's own
schema also lets unknown parameters pass, which then break the flow run; this one refuses them.
"""

import sys
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName


def as_form(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter schema (JSON schema with ``definitions``) as a form; the given one is kept."""
    definitions = {name: _plain(part) for name, part in schema.get("definitions", {}).items()}
    return {**_plain(schema), "definitions": definitions, "additionalProperties": False}


def _plain(model: dict[str, Any]) -> dict[str, Any]:
    properties = model.get("properties", {})
    return {**model, "properties": {name: _field(part) for name, part in properties.items()}}


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """The field without its None. A section keeps it, which is how it is folded in the form."""
    choices = field.get("anyOf", [])
    real = [choice for choice in choices if choice != {"type": "null"}]
    if len(real) != 1 or len(real) == len(choices) or "$ref" in real[0]:
        return field
    kept = {k: v for k, v in field.items() if k != "anyOf" and (k, v) != ("default", None)}
    return {**real[0], **kept}


def give_forms(client: SyncPrefectClient, pool: str) -> None:
    """Give every deployment of the pool its form. Raises httpx.HTTPStatusError."""
    in_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
    for deployment in client.read_deployments(work_pool_filter=in_pool):
        form = as_form(deployment.parameter_openapi_schema or {})
        client.request(
            "PATCH",
            "/deployments/{id}",
            path_params={"id": deployment.id},
            json={"parameter_openapi_schema": form},
        )


def main() -> None:
    """``python -m flows.form POOL QUEUE``: the forms, and one run at a time in that queue."""
    pool, queue = sys.argv[1:]
    with get_client(sync_client=True) as client:
        give_forms(client, pool)
        client.request(
            "PATCH",
            "/work_pools/{work_pool_name}/queues/{name}",
            path_params={"work_pool_name": pool, "name": queue},
            json={"concurrency_limit": 1},
        )


if __name__ == "__main__":
    main()
