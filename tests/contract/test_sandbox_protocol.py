"""Random frames and random programs: the supervisor neither crashes nor answers amiss."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_image import wire
from training.sandbox.settings import SandboxSettings
from training.sandbox.verdict import CallResult, Verdict
from training.sandbox.worker import Worker, _result

SETTINGS = SandboxSettings(
    isolation="bubblewrap", workers=1, wall_seconds=1, memory_mb=128, output_bytes=4096
)
VALID = {
    "id": 5, "code": "print(1)", "wall_seconds": 1, "cpu_seconds": 1,
    "memory_bytes": 1 << 27, "output_bytes": 4096,
}  # fmt: skip
fuzz = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Bench:
    """A supervisor on a loop of its own; started again only where the protocol says it ends."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.worker = Worker(SETTINGS, "bubblewrap")
        self.runner.run(self.worker.start())

    def frame(self, body: bytes) -> dict[str, Any]:
        async def exchange() -> dict[str, Any]:
            assert self.worker._writer is not None
            self.worker._writer.write(struct.pack(">I", len(body)) + body)
            async with asyncio.timeout(60):
                return await self.worker._read()

        return self.runner.run(exchange())

    def call(self, code: str, wall_seconds: float | None = None) -> CallResult:
        return self.runner.run(self.worker.call(code, wall_seconds))

    def close(self) -> None:
        self.runner.run(self.worker.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    opened = Bench()
    yield opened
    opened.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
broken_requests = st.builds(
    lambda changes, dropped: {k: v for k, v in (VALID | changes).items() if k not in dropped},
    st.dictionaries(st.sampled_from(sorted(VALID)), json_values, max_size=3),
    st.sets(st.sampled_from(sorted(VALID)), max_size=2),
)


@fuzz
@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_a_frame_that_is_no_request_is_answered_as_infra(bench: Bench, body: bytes) -> None:
    reply = bench.frame(body)
    assert _result(reply, -1).verdict is Verdict.INFRA
    assert bench.call("print('next')", 60).stdout == "next\n"


@fuzz
@given(broken_requests)
def test_a_request_with_odd_fields_gets_a_typed_reply(
    bench: Bench, request_: dict[str, Any]
) -> None:
    reply = bench.frame(json.dumps(request_).encode())
    assert _result(reply, reply["id"]).verdict in Verdict
    assert reply["id"] in (-1, request_.get("id"))


def test_a_frame_that_announces_too_much_ends_the_connection(bench: Bench) -> None:
    one = Bench()
    try:
        with pytest.raises(Exception, match="closed the connection"):
            one.runner.run(_announce(one))
    finally:
        one.close()
    assert bench.call("print(1)", 60).verdict is Verdict.OK


async def _announce(bench: Bench) -> None:
    assert bench.worker._writer is not None
    bench.worker._writer.write(struct.pack(">I", wire.MAX_FRAME + 1))
    async with asyncio.timeout(60):
        await bench.worker._read()


TOKENS = (
    "import os sys ctypes ; ( ) [ ] { } = == : 0 1 10**9 'x' * + - lambda def f while True for x "
    "in range class pass return yield await async print raise try except with open del global "
    "os._exit sys.exit fork kill , . @ ... # \\ exec eval compile globals __import__"
)
tokens = st.sampled_from([*TOKENS.split(), "\n", "\t", " "])
programs = (
    st.text(max_size=200)
    | st.binary(max_size=200).map(lambda data: data.decode("latin-1"))
    | st.lists(tokens, max_size=30).map(" ".join)
)


@fuzz
@given(programs)
def test_any_text_as_code_comes_to_a_typed_verdict(bench: Bench, code: str) -> None:
    result = bench.call(code)
    assert result.verdict is not Verdict.INFRA
    assert isinstance(result.stdout, str)
    assert (result.exit_code is None) != (result.signal is None)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values))
def test_frames_round_trip(message: dict[str, Any]) -> None:
    packed = wire.pack(message)
    assert struct.unpack(">I", packed[:4])[0] == len(packed) - 4
    assert json.dumps(wire.unpack(packed[4:])) == json.dumps(message)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_unpack_returns_an_object_or_a_wire_error(body: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        assert isinstance(wire.unpack(body), dict)


def test_deep_json_is_a_wire_error() -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(b"[" * 1_000_000)
