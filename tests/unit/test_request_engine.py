"""The engine over requests: turns, limits, seeds, and failures that end in one sentence."""

import asyncio
from collections.abc import Sequence

import pytest

from training.errors import InfraError
from training.rollout.engine import Prompt, Sampled, Sampling
from training.rollout.request_engine import Completion, Request, RequestEngine
from training.seeds import derive_seed

EOS, STOP = 0, 9


class Server:
    """Answers the row's turns in order: `script` maps a prompt's first token to its answers."""

    def __init__(self, script: dict[int, list[list[int]]], wait: float = 0.0) -> None:
        self.script, self.wait, self.requests = script, wait, list[Request]()

    async def __call__(self, request: Request) -> Completion:
        number = sum(r.session == request.session for r in self.requests)
        self.requests.append(request)
        await asyncio.sleep(self.wait * request.ids[0])
        ids = self.script[request.ids[0]][number][: request.max_tokens]
        ends = {EOS: "eos", STOP: "stop"}
        return Completion(ids, [-0.5] * len(ids), ends.get(ids[-1], "length"))  # type: ignore[arg-type]

    def engine(self, deadline: float = 5.0) -> RequestEngine:
        return RequestEngine(self, eos_ids=frozenset({EOS}), context=32, deadline_seconds=deadline)


async def nothing(_: int, __: Sampled) -> Sequence[int] | None:
    raise AssertionError("no turn was expected")


async def test_observations_are_masked_and_rows_keep_their_order() -> None:
    server = Server({1: [[5, STOP], [6, EOS]], 2: [[7, EOS]]}, wait=0.01)
    asked: list[tuple[int, list[int]]] = []

    async def turn(index: int, row: Sampled) -> list[int]:
        asked.append((index, list(row.ids)))
        return [3, 3]

    rows = await server.engine().sample(
        [Prompt((2,), 8), Prompt((1, 4), 7)], Sampling(stop="</x>"), turn
    )
    assert [row.ids for row in rows] == [[7, EOS], [5, STOP, 3, 3, 6, EOS]]
    assert rows[1].mask == [1, 1, 0, 0, 1, 1]
    assert rows[1].logprobs == [-0.5, -0.5, 0.0, 0.0, -0.5, -0.5]
    assert asked == [(1, [5, STOP])]
    told = [r for r in server.requests if r.ids[0] == 1]
    assert [list(r.ids) for r in told] == [[1, 4], [1, 4, 5, STOP, 3, 3]]
    assert [r.seed for r in told] == [derive_seed(7, 0), derive_seed(7, 1)]
    assert told[0].session == told[1].session


async def test_limits_hold_over_turns() -> None:
    server = Server({1: [[5, STOP], [6, STOP], [6] * 40]})
    answers = iter([[], [3]])

    async def turn(_: int, __: Sampled) -> list[int]:
        return next(answers)

    rows = await server.engine().sample(
        [Prompt((1,), 0)], Sampling(stop="</x>", max_turn_tokens=5, max_context_tokens=9), turn
    )
    # The empty answer goes on with the turn, so 3 of 5 tokens are left; the observation begins a
    # new turn, and then the context ends it.
    assert [r.max_tokens for r in server.requests] == [5, 3, 3]
    assert rows[0].ids == [5, STOP, 6, STOP, 3, 6, 6, 6]
    assert rows[0].finish == "length"


async def test_no_row_waits_for_another() -> None:
    server = Server({1: [[5, STOP], [EOS]], 2: [[5, STOP], [EOS]]})
    both = asyncio.Barrier(2)

    async def turn(_: int, __: Sampled) -> list[int]:
        await asyncio.wait_for(both.wait(), 2)  # passes only if both rows are here at once
        return [3]

    prompts = [Prompt((1,), 0), Prompt((2,), 0)]
    rows = await server.engine().sample(prompts, Sampling(stop="</x>"), turn)
    assert [row.finish for row in rows] == ["eos", "eos"]


async def test_a_request_that_outlives_its_deadline_is_an_infra_failure() -> None:
    server = Server({1: [[EOS]], 9: [[EOS]]}, wait=5.0)
    with pytest.raises(InfraError, match=r"within 0\.05 s"):
        await server.engine(0.05).sample([Prompt((1,), 0), Prompt((9,), 0)], Sampling(), nothing)
    assert len(asyncio.all_tasks()) == 1, "rows were left running"


async def test_what_a_turn_raises_comes_out_and_ends_the_other_rows() -> None:
    server = Server({1: [[STOP]], 9: [[EOS]]}, wait=0.05)

    async def turn(_: int, __: Sampled) -> list[int]:
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        await server.engine().sample(
            [Prompt((1,), 0), Prompt((9,), 0)], Sampling(stop="</x>"), turn
        )
    assert len(asyncio.all_tasks()) == 1


async def test_an_answer_that_breaks_the_contract_is_an_infra_failure() -> None:
    async def crooked(request: Request) -> Completion:
        return Completion([5, 5], [-0.5], "length")

    engine = RequestEngine(crooked, eos_ids=frozenset(), context=32, deadline_seconds=5.0)
    with pytest.raises(InfraError, match="2 tokens with 1 log-probabilities"):
        await engine.sample([Prompt((1,), 0)], Sampling(), nothing)


@pytest.mark.parametrize(("ids", "words"), [((), "no tokens"), ((1,) * 32, "shorten the prompt")])
async def test_prompts_without_room_are_refused(ids: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        await Server({}).engine().sample([Prompt(ids, 0)], Sampling(), nothing)
