"""The turn loop: what ends a turn, what runs, what the model sees, and how it is judged."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from rollout_parts import byte_tokenizer, chain_model, token

from training.rollout.engine import Finish, Prompt, Sampled, Sampling, TurnHandler
from training.rollout.observation import OBSERVATION, ObservationEncoder
from training.rollout.tool_loop import Task, ToolLoop, judge, last_code_block
from training.rollout.trajectory import Status, Stop, Trajectory
from training.rollout.transformers_engine import TransformersEngine
from training.sandbox.verdict import CallResult, Verdict

TOKENIZER = byte_tokenizer("<python>", "</python>", "<output>", "</output>")
EOS = "<eos>"
PROMPT = (5, 6, 7)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


class ScriptedEngine:
    """An engine whose model writes given text: one script a row, one part a turn.

    A part is written until it completes the stop string; the rest of it is written if the turn
    goes on.  `<eos>` in a part ends the row, and so does the end of the script (as a length).
    """

    eos_ids = frozenset({1})

    def __init__(self, *scripts: Sequence[str], context: int = 4096) -> None:
        self.scripts, self.context = scripts, context
        self.seeds: list[int] = []

    async def sample(
        self, prompts: Sequence[Prompt], sampling: Sampling, turn: TurnHandler
    ) -> list[Sampled]:
        self.seeds += [prompt.seed for prompt in prompts]
        rows = [self.scripts[index % len(self.scripts)] for index in range(len(prompts))]
        return list(
            await asyncio.gather(
                *(self._row(index, script, sampling, turn) for index, script in enumerate(rows))
            )
        )

    async def _row(
        self, index: int, script: Sequence[str], sampling: Sampling, turn: TurnHandler
    ) -> Sampled:
        row = Sampled()
        for part in script:
            start = len(row.ids)
            for new in encode(part):
                row.ids.append(new)
                row.mask.append(1)
                row.logprobs.append(-0.5)
                if new in self.eos_ids:
                    return self._ended(row, "eos")
                text = TOKENIZER.decode(row.ids[start:])
                if sampling.stop is None or not text.endswith(sampling.stop):
                    continue
                reply = await turn(index, row)
                if reply is None:
                    return self._ended(row, "stop")
                if reply:
                    row.ids += reply
                    row.mask += [0] * len(reply)
                    row.logprobs += [0.0] * len(reply)
                    break
        return self._ended(row, "length")

    @staticmethod
    def _ended(row: Sampled, finish: Finish) -> Sampled:
        row.finish = finish
        return row

    def update(self, model: object) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}


class FakeSandbox:
    """Answers as `reply` says and remembers the code."""

    def __init__(self, reply: Callable[[str], CallResult] | None = None) -> None:
        self.codes: list[str] = []
        self._reply = reply or (lambda _code: result("7\n"))

    async def run(self, code: str) -> CallResult:
        self.codes.append(code)
        await asyncio.sleep(0)
        return self._reply(code)


def result(stdout: str, verdict: Verdict = Verdict.OK) -> CallResult:
    return CallResult(verdict, stdout, 0, None, 0.25, False, "secret traceback")


def rollout(
    *scripts: Sequence[str],
    sandbox: FakeSandbox | None,
    group_size: int = 1,
    context: int = 4096,
    max_turns: int = 8,
) -> list[Trajectory]:
    """One group: member g follows script g."""
    loop = ToolLoop(TOKENIZER, ScriptedEngine(*scripts, context=context), sandbox)
    (group,) = asyncio.run(
        loop.rollout([Task("t", PROMPT)], group_size, Sampling(max_turns=max_turns), [3])
    )
    return group


def one(*script: str, sandbox: FakeSandbox | None = None, **settings: int) -> Trajectory:
    (trajectory,) = rollout(script, sandbox=sandbox or FakeSandbox(), **settings)
    return trajectory


def test_a_call_is_run_observed_and_answered() -> None:
    sandbox = FakeSandbox()
    trajectory = one(
        "Let me see.\n<python>print(3+4)</python>", "Final Answer: 7\n" + EOS, sandbox=sandbox
    )
    assert sandbox.codes == ["print(3+4)"]
    assert TOKENIZER.decode(trajectory.output_ids) == (
        "Let me see.\n<python>print(3+4)</python>\n<output>7</output>\nFinal Answer: 7\n<eos>"
    )
    seen = [i for i, m in zip(trajectory.output_ids, trajectory.mask, strict=True) if not m]
    assert TOKENIZER.decode(seen) == OBSERVATION.format(stdout="7")
    assert [p for p, m in zip(trajectory.logprobs, trajectory.mask, strict=True) if not m] == (
        [0.0] * len(seen)
    )
    assert (trajectory.status, trajectory.label) == (Status.VALID, "7")
    assert (trajectory.turns, trajectory.n_tool, trajectory.stop) == (2, 1, Stop.EOS)
    (call,) = trajectory.calls
    assert (call.turn, call.verdict, call.seconds, call.counted) == (1, "ok", 0.25, True)
    assert trajectory.text == ("Let me see.\n<python>print(3+4)</python>\nFinal Answer: 7\n")
    assert (trajectory.task, trajectory.prompt_ids) == ("t", list(PROMPT))


def test_the_answer_is_never_read_from_an_observation() -> None:
    sandbox = FakeSandbox(lambda _code: result("Final Answer: 99\n"))
    silent = one("<python>x</python>", "So it is.\n" + EOS, sandbox=sandbox)
    assert (silent.status, silent.label) == (Status.INVALID, None)
    other = one("<python>x</python>", "Final Answer: 5" + EOS, sandbox=sandbox)
    assert (other.status, other.label) == (Status.VALID, "5")


def test_the_answer_is_never_read_from_code() -> None:
    trajectory = one("<python>\nFinal Answer: 5\n</python>", "Hm." + EOS)
    assert trajectory.status is Status.INVALID


@pytest.mark.parametrize(
    "text", ["<python>print(1)", "print(1)", "<python print(1)</python", "<output>1</output>"]
)
def test_an_unclosed_or_malformed_block_runs_nothing(text: str) -> None:
    sandbox = FakeSandbox()
    trajectory = one(text + EOS, sandbox=sandbox)
    assert sandbox.codes == []
    assert (trajectory.status, trajectory.turns) == (Status.INVALID, 1)


def test_a_close_without_an_open_lets_the_turn_go_on() -> None:
    sandbox = FakeSandbox()
    trajectory = one("a </python> b\nFinal Answer: 4\n" + EOS, sandbox=sandbox)
    assert sandbox.codes == []
    assert (trajectory.label, trajectory.turns, trajectory.calls) == ("4", 1, [])
    assert 0 not in trajectory.mask


def test_after_a_stray_close_a_complete_pair_still_runs() -> None:
    sandbox = FakeSandbox()
    trajectory = one("</python> <python>f()</python>", "Final Answer: 7" + EOS, sandbox=sandbox)
    assert sandbox.codes == ["f()"]
    assert trajectory.turns == 2


def test_code_of_an_earlier_turn_opens_no_pair() -> None:
    sandbox = FakeSandbox()
    trajectory = one("<python>a</python>", "b</python>c\nFinal Answer: 1\n" + EOS, sandbox=sandbox)
    assert sandbox.codes == ["a"]
    assert trajectory.label == "1"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<python>a</python>", "a"),
        ("<python>\na\nb\n</python>", "\na\nb\n"),
        ("<python></python>", ""),
        ("<python>a<python>b</python>", "b"),
        ("</python><python>a</python>", "a"),
        ("<python>a</python></python>", "a"),
        ("</python>", None),
        ("<python>", None),
        ("</python><python>", None),
    ],
)
def test_last_code_block(text: str, code: str | None) -> None:
    assert last_code_block(text) == code


def test_code_over_the_limit_is_refused_and_not_counted() -> None:
    sandbox = FakeSandbox()
    fits, too_long = "x" * 1024, "x" * 1025
    trajectory = one(
        f"<python>{fits}</python>",
        f"<python>{too_long}</python>",
        "Final Answer: 7" + EOS,
        sandbox=sandbox,
    )
    assert sandbox.codes == [fits]
    assert [(call.verdict, call.counted) for call in trajectory.calls] == [
        ("ok", True),
        ("refused", False),
    ]
    assert (trajectory.n_tool, trajectory.turns, trajectory.label) == (1, 3, "7")
    assert "longer than 1024 characters" in TOKENIZER.decode(trajectory.output_ids)


def test_a_turn_with_a_final_answer_ends_and_runs_no_call() -> None:
    sandbox = FakeSandbox()
    trajectory = one(
        "Final Answer: 5\n<python>print(6)</python>", "Final Answer: 6" + EOS, sandbox=sandbox
    )
    assert sandbox.codes == []
    assert (trajectory.status, trajectory.label) == (Status.VALID, "5")
    assert (trajectory.stop, trajectory.turns, trajectory.calls) == (Stop.FINAL, 1, [])


def test_the_last_turns_call_is_not_run() -> None:
    sandbox = FakeSandbox()
    trajectory = one(*["<python>a</python>"] * 4, sandbox=sandbox, max_turns=3)
    assert sandbox.codes == ["a", "a"]
    assert (trajectory.status, trajectory.stop) == (Status.MISSING, Stop.TURNS)
    assert (trajectory.turns, trajectory.n_tool) == (3, 2)


def test_the_last_turn_may_answer() -> None:
    trajectory = one("<python>a</python>", "Final Answer: 7" + EOS, max_turns=2)
    assert (trajectory.status, trajectory.turns) == (Status.VALID, 2)


@pytest.mark.parametrize(
    "verdict", [Verdict.ERROR, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.OUTPUT_LIMIT]
)
def test_failed_calls_show_their_output_and_a_notice_and_count(verdict: Verdict) -> None:
    sandbox = FakeSandbox(lambda _code: result("so far\n", verdict))
    trajectory = one("<python>a</python>", "Final Answer: 7" + EOS, sandbox=sandbox)
    seen = TOKENIZER.decode(trajectory.output_ids)
    assert "<output>so far\n[The code " in seen
    assert "secret" not in seen
    assert (trajectory.n_tool, trajectory.calls[0].verdict) == (1, verdict.value)
    assert trajectory.status is Status.VALID


def test_infra_failures_are_resampled_twice_with_fresh_seeds() -> None:
    replies = iter([Verdict.INFRA, Verdict.INFRA, Verdict.OK])
    sandbox = FakeSandbox(lambda _code: result("7\n", next(replies)))
    engine = ScriptedEngine(["<python>a</python>", "Final Answer: 7" + EOS])
    loop = ToolLoop(TOKENIZER, engine, sandbox)
    ((trajectory,),) = asyncio.run(loop.rollout([Task("t", PROMPT)], 1, Sampling(), [3]))
    assert len(set(engine.seeds)) == 3
    assert trajectory.seed == engine.seeds[-1]
    assert (trajectory.status, trajectory.n_tool) == (Status.VALID, 1)


def test_a_persistent_infra_failure_is_infra_and_no_reward() -> None:
    sandbox = FakeSandbox(
        lambda code: result("7\n", Verdict.INFRA if code == "bad" else Verdict.OK)
    )
    good = ["<python>good</python>", "Final Answer: 7" + EOS]
    bad = ["<python>bad</python>", "Final Answer: 7" + EOS]
    engine = ScriptedEngine(bad)
    loop = ToolLoop(TOKENIZER, engine, sandbox)
    ((failed,),) = asyncio.run(loop.rollout([Task("t", PROMPT)], 1, Sampling(), [3]))
    assert (failed.status, failed.stop, failed.label) == (Status.INFRA, Stop.INFRA, None)
    assert failed.n_tool == 0
    assert sandbox.codes == ["bad"] * 3
    (fine,) = rollout(good, sandbox=sandbox)
    assert fine.status is Status.VALID


def test_only_the_failed_members_are_resampled() -> None:
    calls = iter([Verdict.OK, Verdict.INFRA, Verdict.OK, Verdict.OK, Verdict.OK])
    sandbox = FakeSandbox(lambda _code: result("7\n", next(calls)))
    engine = ScriptedEngine(["<python>a</python>", "Final Answer: 7" + EOS])
    loop = ToolLoop(TOKENIZER, engine, sandbox)
    tasks = [Task("a", PROMPT), Task("b", PROMPT)]
    groups = asyncio.run(loop.rollout(tasks, 2, Sampling(), [3, 4]))
    assert [[row.task for row in group] for group in groups] == [["a", "a"], ["b", "b"]]
    assert all(row.status is Status.VALID for group in groups for row in group)
    assert len(engine.seeds) == 5
    assert [row.seed for group in groups for row in group] == [
        engine.seeds[0],
        engine.seeds[4],
        engine.seeds[2],
        engine.seeds[3],
    ]


def test_a_sandbox_that_raises_ends_the_rollout() -> None:
    def broken(_code: str) -> CallResult:
        raise RuntimeError("the sandbox is gone")

    with pytest.raises(RuntimeError, match="gone"):
        one("<python>a</python>", sandbox=FakeSandbox(broken))


def test_without_a_tool_nothing_stops_or_runs() -> None:
    (trajectory,) = rollout(["<python>a</python>\nFinal Answer: 3\n" + EOS], sandbox=None)
    assert (trajectory.label, trajectory.turns, trajectory.calls) == ("3", 1, [])
    assert 0 not in trajectory.mask


@pytest.mark.parametrize(
    ("text", "status", "label"),
    [
        ("Final Answer: 5\n", Status.VALID, "5"),
        ("Final Answer: 1/2\nFinal Answer: 0.5\n", Status.VALID, "1/2"),
        ("Final Answer: 5\nFinal Answer: 6\n", Status.INVALID, None),
        ("Final Answer: none\n", Status.INVALID, None),
        ("I give up.", Status.INVALID, None),
        ("", Status.MISSING, None),
        (" \n", Status.MISSING, None),
    ],
)
def test_finished_texts(text: str, status: Status, label: str | None) -> None:
    trajectory = one(text + EOS)
    assert (trajectory.status, trajectory.label, trajectory.stop) == (status, label, Stop.EOS)
    assert trajectory.text == text


@pytest.mark.parametrize(
    ("text", "status", "label"),
    [
        ("Let me think", Status.MISSING, None),
        ("Final Answer: 1", Status.MISSING, None),  # perhaps it was going to be 12
        ("Final Answer: 5\nbecause", Status.VALID, "5"),
        ("Final Answer: 5\nFinal Answer: 6", Status.VALID, "5"),
        ("Final Answer: 5\nFinal Answer: 6\n", Status.INVALID, None),
    ],
)
def test_cut_texts(text: str, status: Status, label: str | None) -> None:
    trajectory = one(text)
    assert (trajectory.status, trajectory.label, trajectory.stop) == (status, label, Stop.LENGTH)
    assert judge(text, Stop.CONTEXT)[0] is status


def test_an_observation_beyond_the_context_ends_the_trajectory() -> None:
    sandbox = FakeSandbox(lambda _code: result("y" * 100))
    trajectory = one("<python>a</python>", "Final Answer: 7" + EOS, sandbox=sandbox, context=60)
    assert (trajectory.status, trajectory.stop) == (Status.MISSING, Stop.CONTEXT)
    assert trajectory.n_tool == 1
    assert 0 not in trajectory.mask


def test_long_observations_keep_both_ends() -> None:
    encoder = ObservationEncoder(TOKENIZER, 100)
    ids = encoder.encode("a" * 500 + "z" * 500)
    text = TOKENIZER.decode(ids)
    assert len(ids) == 100
    assert text.startswith("\n<output>aaaa")
    assert text.endswith("zzzz</output>\n")
    assert "cut here" in text
    body = "b" * (100 - len(encode("\n<output></output>\n")))
    assert TOKENIZER.decode(encoder.encode(body)) == OBSERVATION.format(stdout=body)


def test_too_small_an_observation_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="max_observation_tokens is 20"):
        ObservationEncoder(TOKENIZER, 20)


def test_printed_control_tokens_stay_text() -> None:
    ids = ObservationEncoder(TOKENIZER, 100).encode("<eos><pad>")
    assert not {0, 1} & set(ids)
    assert TOKENIZER.decode(ids) == OBSERVATION.format(stdout="<eos><pad>")


def test_only_the_last_line_feed_of_the_output_is_left_out() -> None:
    encoder = ObservationEncoder(TOKENIZER, 100)
    assert TOKENIZER.decode(encoder.encode("1\n2\n\n")) == OBSERVATION.format(stdout="1\n2\n")
    assert TOKENIZER.decode(encoder.encode("")) == OBSERVATION.format(stdout="")


def test_counts_that_do_not_fit_are_refused() -> None:
    loop = ToolLoop(TOKENIZER, ScriptedEngine([EOS]), None)
    with pytest.raises(ValueError, match="2 tasks need 2 seeds, got 1"):
        asyncio.run(loop.rollout([Task("a", PROMPT), Task("b", PROMPT)], 2, Sampling(), [1]))
    with pytest.raises(ValueError, match="group_size is 0"):
        asyncio.run(loop.rollout([Task("a", PROMPT)], 0, Sampling(), [1]))


def test_the_embedded_engine_through_the_loop() -> None:
    """A real model, whose weights make it call the tool, and the loop around it."""
    tokenizer = byte_tokenizer(
        "<python>", "</python>", "print(3+4)", "print(9)", "Final Answer: 7", "Final Answer: 9"
    )
    model = chain_model(
        tokenizer,
        {
            "q": ("<python>", "Final Answer: 9"),
            "<python>": ("print(3+4)", "print(9)"),
            "print(3+4)": "</python>",
            "print(9)": "</python>",
            "\n": ("Final Answer: 7", "<python>"),
        },
    )
    engine = TransformersEngine(model, tokenizer, wave_rows=16)
    sandbox = FakeSandbox(lambda code: result("7\n" if code == "print(3+4)" else "9\n"))
    loop = ToolLoop(tokenizer, engine, sandbox)
    tasks = [Task(f"t{index}", (token(tokenizer, "q"),)) for index in range(5)]
    seeds = list(range(5))
    groups = asyncio.run(loop.rollout(tasks, 8, Sampling(max_turns=3), seeds))
    again = asyncio.run(loop.rollout(tasks, 8, Sampling(max_turns=3), seeds))
    assert groups == again
    rows = [row for group in groups for row in group]
    assert len({row.seed for row in rows}) == len(rows) == 40
    assert {row.status for row in rows} == {Status.VALID, Status.MISSING}
    assert {row.label for row in rows} == {"7", "9", None}
    assert {row.turns for row in rows} == {1, 2, 3}
    for row in rows:
        assert len(row.output_ids) == len(row.mask) == len(row.logprobs)
        assert (row.stop is Stop.TURNS) == (row.status is Status.MISSING)
        assert row.n_tool == tokenizer.decode(row.output_ids).count("<output>")
