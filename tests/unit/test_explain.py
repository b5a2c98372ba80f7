"""`anchorloop explain`: the shapes, the numbers and every refusal."""

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.errors import UserError
from flows.cli.main import app

EXECUTOR_KEYS = {
    "resolved", "current_label", "anchor_label", "r_cur", "r_anc", "a_cur", "a_hist", "advantage",
    "agreement", "weight", "scaled", "clip", "structure",
}  # fmt: skip
CURRICULUM_KEYS = ["r_fmt", "r_unc", "r_tool", "r_rep", "r_ref", "r_c", "advantage"]


def explain(command: str, given: object) -> Any:
    """Run a command in this process; a text is passed on as it is, anything else as JSON."""
    text = given if isinstance(given, (str, bytes)) else json.dumps(given)
    result = CliRunner().invoke(app, ["explain", command], input=text)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def run(command: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run the real command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "flows.cli.main", "explain", command],
        input=text,
        encoding="utf-8",
        capture_output=True,
        timeout=60,
        check=False,
    )


def executor(current: list[Any], anchor: list[Any], **more: Any) -> dict[str, Any]:
    given = {"current": current, "anchor": anchor, **more}
    value: dict[str, Any] = json.loads(explain("executor", given))
    return value


def test_answer_reads_outputs_and_bare_answers_line_by_line() -> None:
    lines = [
        {"id": 1, "text": "so it is\nFinal Answer: 0.5"},
        {"id": "b", "answer": "\\frac{1}{2}"},
        {"id": "c", "text": ""},
        {"id": "d", "answer": None},
        {"id": "e", "text": "Final Answer: 1\nFinal Answer: 2"},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines) + "\n"
    result = run("answer", text)
    assert (result.returncode, result.stderr) == (0, "")
    out = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["id"] for line in out] == [1, "b", "c", "d", "e"]
    assert [line["status"] for line in out] == ["valid", "valid"] + ["invalid"] * 3
    assert [line["label"] for line in out] == ["1/2", "1/2", None, None, None]
    assert all(list(line) == ["id", "status", "label", "reason"] and line["reason"] for line in out)


def test_no_lines_give_no_lines() -> None:
    result = run("answer", "")
    assert (result.returncode, result.stdout) == (0, "")


def test_executor_gives_the_published_vector() -> None:
    current = ["1", "1.0", "2/2", "01", "2", "2", "4/2", "3"]
    given = {"current": current, "anchor": ["2"] * 8, "std": "population"}
    result = run("executor", json.dumps(given))
    assert (result.returncode, result.stderr) == (0, "")
    out = json.loads(result.stdout)
    assert set(out) == EXECUTOR_KEYS
    assert (out["resolved"], out["current_label"], out["anchor_label"]) == (True, "1", "2")
    assert out["r_cur"] == [1] * 4 + [0] * 4
    assert out["r_anc"] == [0] * 4 + [1] * 3 + [0]
    assert out["a_cur"] == pytest.approx([1.0] * 4 + [-1.0] * 4, abs=1e-5)
    assert out["a_hist"] == pytest.approx([0.944] * 4 + [-1.214] * 3 + [-0.135], abs=5e-4)
    assert out["advantage"] == pytest.approx([0.966] * 4 + [-1.128] * 3 + [-0.481], abs=5e-4)
    assert out["agreement"] == 0.5
    assert out["weight"] == pytest.approx(0.76)
    assert out["scaled"] == pytest.approx([0.76 * a for a in out["advantage"]])
    assert out["clip"] == pytest.approx([0.2, 0.26])
    assert out["structure"] == "non_collinear"


def test_executor_takes_capital_letters_as_placeholders() -> None:
    letters = executor(list("AAAABBBC"), list("BBBBBBAA"))
    numbers = executor([1, 1, 1, 1, 2, 2, 2, 3], [2, 2, 2, 2, 2, 2, 1, 1])
    assert (letters["current_label"], letters["anchor_label"]) == ("A", "B")
    assert letters["advantage"] == numbers["advantage"]
    assert executor(["none", "x", "A", "?"], ["A"] * 4)["r_cur"] == [0, 0, 1, 0]


def test_executor_defaults_are_the_papers() -> None:
    groups = (["1"] * 5 + ["2"] * 3, ["2"] * 8)
    assert executor(*groups) == executor(*groups, alpha=0.6, std="sample")
    assert executor(*groups) != executor(*groups, alpha=0.6, std="population")
    assert executor(*groups, alpha=0)["advantage"] == executor(*groups)["a_cur"]


def test_executor_null_and_unreadable_answers_do_not_vote_but_count() -> None:
    out = executor(["5", "5", None, "no idea"], ["5", None, None, ""])
    assert (out["r_cur"], out["agreement"], out["anchor_label"]) == ([1, 1, 0, 0], 0.5, "5")
    assert out["a_hist"] == [0.0] * 4
    assert out["structure"] == "zero"


def test_executor_unresolved_groups_keep_their_labels_and_have_no_numbers() -> None:
    out = executor(["1", "1", "2", "2"], ["3", "3", None, None])
    assert set(out) == EXECUTOR_KEYS
    assert (out["resolved"], out["current_label"], out["anchor_label"]) == (False, None, "3")
    assert all(
        out[key] is None for key in EXECUTOR_KEYS - {"resolved", "anchor_label"} - {"current_label"}
    )


def test_numbers_are_read_as_they_are_written() -> None:
    text = '{"current": [0.50, "1/2", 100000000000000000000], "anchor": [1, 1.0, 1e0]}'
    out = json.loads(explain("executor", text))
    assert (out["current_label"], out["anchor_label"]) == ("1/2", "1")
    assert out["r_cur"] == [1, 1, 0]
    long = "7" * 5000
    lines = explain("answer", f'{{"id": 1, "answer": {long}}}\n{{"id": 2, "answer": "{long}"}}')
    number, string = (json.loads(line) for line in lines.splitlines())
    assert number["label"] == string["label"] is not None


def task(text: str, current: list[Any], calls: list[int], **more: Any) -> dict[str, Any]:
    return {"text": text, "current": current, "tool_calls": calls, **more}


def test_curriculum_by_hand() -> None:
    tasks = [
        task("Problem: Add 2 and 3.\nAnswer: 5", ["5", "5", "5", "6"], [1, 0, 5, 0],
             anchor=["5", "5", "6", "7"]),
        task("Problem: How many primes are below fifty?\nAnswer: 15", ["1", "1", "2", "2"],
             [0, 0, 0, 0]),
        {"text": "I refuse."},
    ]  # fmt: skip
    result = run("curriculum", json.dumps({"tasks": tasks}))
    assert (result.returncode, result.stderr) == (0, "")
    out = json.loads(result.stdout)["tasks"]
    assert [list(score) for score in out] == [CURRICULUM_KEYS] * 3
    assert [score["r_fmt"] for score in out] == [1, 1, 0]
    assert [score["r_unc"] for score in out] == [0.5, 1.0, 0.0]
    assert [score["r_tool"] for score in out] == [1.25, 0.0, 0.0]
    assert [score["r_rep"] for score in out] == pytest.approx([1 / 3] * 3)
    assert [score["r_ref"] for score in out] == [0.25, 0.0, 0.0]
    rewards = [0.5 + 0.3125 - 0.2 / 3 + 0.1, 1 - 0.2 / 3, 0.0]
    assert [score["r_c"] for score in out] == pytest.approx(rewards)
    assert sum(score["advantage"] for score in out) == pytest.approx(0.0, abs=1e-9)


def test_a_format_invalid_task_with_groups_still_has_reward_zero() -> None:
    given = {"tasks": [task("no format", ["1", "2"], [1, 1], anchor=["1", "1"])]}
    score = json.loads(explain("curriculum", given))["tasks"][0]
    assert (score["r_fmt"], score["r_unc"], score["r_tool"], score["r_c"]) == (0, 1.0, 1.0, 0.0)


def test_a_format_invalid_task_may_have_empty_groups() -> None:
    empty: dict[str, object] = {"current": [], "anchor": [], "tool_calls": []}
    given = {"tasks": [{"text": "no format", **empty}, TASK]}
    scores = json.loads(explain("curriculum", given))["tasks"]
    assert [score["r_fmt"] for score in scores] == [0, 1]
    with pytest.raises(UserError, match=r"tasks\[0\].current: a group needs at least 2"):
        explain("curriculum", {"tasks": [{**TASK, **empty}]})


GOOD = {"current": ["1", "1"], "anchor": ["1", "1"]}
TASK = {"text": "Problem: Add.\nAnswer: 5", "current": ["5", "5"], "tool_calls": [0, 0]}


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        ("answer", '{"id": 1, "answer": "5"}\nnot json', "line 2: not valid JSON"),
        ("answer", "[1]", "line 1: expected a JSON object, got a list"),
        ("answer", {"id": 1}, "line 1: give either 'text' or 'answer'"),
        ("answer", {"id": 1, "text": "", "answer": ""}, "give either 'text' or 'answer'"),
        ("answer", {"text": "x"}, "line 1: the key 'id' is missing"),
        ("answer", {"id": 1, "text": "x", "more": 1}, "line 1: unknown key 'more'; known keys"),
        ("answer", {"id": 1, "text": 5}, "line 1, 'text': expected a string, got a number"),
        ("answer", {"id": 1, "text": None}, "expected a string, got null"),
        ("answer", {"id": 1, "answer": ["5"]}, "expected an answer (a string) or null, got a list"),
        ("answer", {"id": [], "answer": "5"}, "'id' must be a string or an integer"),
        ("answer", '{"id": 1, "id": 2, "answer": "5"}', "the key 'id' appears twice"),
        ("answer", b'{"id": 1, "answer": "\xff"}', "not UTF-8"),
        ("executor", "", "standard input is empty"),
        ("executor", "[" * 100_000, "nested too deeply"),
        ("executor", {"current": ["1", "1"]}, "the key 'anchor' is missing"),
        ("executor", {**GOOD, "beta": 1}, "unknown key 'beta'; known keys are current, anchor"),
        ("executor", {**GOOD, "current": "11"}, "'current': expected a list, got a string"),
        ("executor", {**GOOD, "current": ["1"]}, "at least 2 answers, got 1"),
        ("executor", {**GOOD, "anchor": ["1"] * 3}, "'anchor': 3 answers for a current group of 2"),
        ("executor", {**GOOD, "anchor": ["1", True]}, "'anchor'[1]: expected an answer"),
        ("executor", {**GOOD, "alpha": 1.5}, "'alpha' must be a number in [0, 1], got 1.5"),
        ("executor", {**GOOD, "alpha": -0.1}, "'alpha' must be a number in [0, 1], got -0.1"),
        ("executor", {**GOOD, "alpha": "x"}, "'alpha' must be a number in [0, 1], got \"x\""),
        ("executor", {**GOOD, "alpha": True}, "'alpha' must be a number in [0, 1], got true"),
        ("executor", {**GOOD, "alpha": None}, "'alpha' must be a number in [0, 1], got null"),
        ("executor", {**GOOD, "alpha": float("nan")}, "NaN is not JSON"),
        ("answer", '{"id": 1, "answer": 1e99999999999999999999}', "999999 is out of range"),
        ("executor", {**GOOD, "std": "unbiased"}, "'std' must be 'sample' or 'population'"),
        ("curriculum", {"tasks": []}, "'tasks' is empty"),
        ("curriculum", {"tasks": {}}, "'tasks': expected a list, got an object"),
        ("curriculum", {"tasks": [5]}, "tasks[0]: expected an object, got a number"),
        ("curriculum", {"tasks": [TASK, {}]}, "tasks[1]: the key 'text' is missing"),
        ("curriculum", {"tasks": [{**TASK, "x": 1}]}, "tasks[0]: unknown key 'x'"),
        ("curriculum", {"tasks": [{"text": TASK["text"]}]}, "tasks[0]: 'current' is missing"),
        ("curriculum", {"tasks": [{**TASK, "tool_calls": None}]}, "'tool_calls' is missing"),
        ("curriculum", {"tasks": [{**TASK, "tool_calls": [0]}]}, "1 counts for a group of 2"),
        ("curriculum", {"tasks": [{**TASK, "tool_calls": [0, -1]}]}, "tool_calls[1]: expected a"),
        ("curriculum", {"tasks": [{**TASK, "tool_calls": [0, 0.5]}]}, "tool_calls[1]: expected a"),
        ("curriculum", {"tasks": [{**TASK, "anchor": ["5"] * 3}]}, "tasks[0].anchor: 3 answers"),
        ("curriculum", {"tasks": [{**TASK, "current": ["5"]}]}, "at least 2 answers, got 1"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_that_names_the_place(
    command: str, given: object, sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        explain(command, given)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "text"), [("answer", "{"), ("executor", "{}"), ("curriculum", '{"tasks": 1}')]
)
def test_bad_input_ends_with_status_2_and_no_output(command: str, text: str) -> None:
    result = run(command, text)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("anchorloop: ")
    assert result.stderr.count("\n") == 1


def test_explain_loads_nothing_heavy() -> None:
    program = (
        "import sys, io, json\n"
        "from flows.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "given = {'current': ['1', '1', '2'], 'anchor': ['1', '2', '2']}\n"
        "assert CliRunner().invoke(app, ['explain', 'executor'], input=json.dumps(given))"
        ".exit_code == 0\n"
        "heavy = {'torch', 'transformers', 'prefect', 'mlflow', 'pandas', 'docker'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
