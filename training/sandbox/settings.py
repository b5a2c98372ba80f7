"""What a user may set about the sandbox."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

RECORDED_ONLY: JsonDict = {"recorded_only": True}
"""Marks a field that says where or how fast, never what: it is no part of a stage's identity."""

Isolation = Literal["container", "bubblewrap", "unsafe"]


class SandboxSettings(BaseModel):
    """Isolation, size and limits of the sandbox that runs the Executor's Python."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    isolation: Literal["auto", "container", "bubblewrap", "unsafe"] = Field(
        "auto",
        description="Level of isolation. 'auto' takes the container where Docker and the image "
        "are there, else bubblewrap, else refuses; 'unsafe' has none and is never chosen by "
        "itself.",
        json_schema_extra=RECORDED_ONLY,
    )
    image: str = Field(
        "anchorloop-sandbox",
        description="Container image of the sandbox (level 'container'): a name or a digest.",
        json_schema_extra=RECORDED_ONLY,
    )
    workers: int = Field(
        2,
        ge=1,
        le=1024,
        description="Supervisors; each runs one call at a time (about 100 MB).",
        json_schema_extra=RECORDED_ONLY,
    )
    wall_seconds: float = Field(30.0, ge=0.05, le=3600, description="Wall time of a call.")
    cpu_seconds: float = Field(
        30.0, ge=0.05, le=3600, description="CPU time of a call, rounded up."
    )
    memory_mb: int = Field(1024, ge=64, le=1 << 20, description="Memory of a call, in MiB.")
    output_bytes: int = Field(
        262_144, ge=1, le=2_000_000, description="Bytes of stdout, and of stderr, a call may write."
    )
    infra_share_limit: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Share of calls that may fail by the sandbox's own fault before it gives up.",
    )
