"""Types of the flows' parameters, which the run form shows as selects and limits."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from training.config_load import names


def _choice_of(kind: str) -> JsonDict:
    """Only the form knows the choices: a flow answers a wrong one in a better sentence."""
    return {"enum": [*names(kind)]}


Profile = Annotated[str, Field(json_schema_extra=_choice_of("profiles"))]
Method = Annotated[str, Field(json_schema_extra=_choice_of("methods"))]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Iterations = Annotated[int, Field(ge=0, le=100)]
Iteration = Annotated[int, Field(ge=0)]
Hours = Annotated[float, Field(gt=0)]
Address = Annotated[str, Field(pattern=r"^[^@]*$")]
"""Of a server or store, without a login: Prefect would keep a password in its database."""
Where = Literal["local", "docker"]
