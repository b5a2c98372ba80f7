"""`anchorloop grade` as a user runs it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


GOOD_ROW = b'{"id": "a", "question": "?", "answer": "5"}\n'


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flows.cli.main", "grade", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_the_generic_grader(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "response": "42", "answer": "42.0"},
        {"id": 2, "response": "so it is \\boxed{\\frac{1}{2}}", "answer": "0.5"},
        {"id": "c", "response": "work\nFinal Answer: 1,000", "answer": 1000},
        {"id": "d", "response": "which makes 7 in all", "answer": "8"},
        {"id": "e", "response": "", "answer": "8"},
    ]
    done = run(write(tmp_path / "x.jsonl", rows), "--benchmark", "math")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [set(line) for line in lines] == [{"id", "prediction", "correct", "reason"}] * 5
    assert [line["id"] for line in lines] == ["a", 2, "c", "d", "e"]
    assert [line["correct"] for line in lines] == [True, True, True, False, False]
    assert [line["prediction"] for line in lines][3:] == ["7", None]
    assert "3 of 5 correct (60.0%), 1 without a readable answer" in done.stderr
    assert run(str(tmp_path / "x.jsonl"), "--benchmark", "math", "--json").stderr == ""


def test_a_benchmarks_own_key_and_choices(tmp_path: Path) -> None:
    question = {
        "id": "mmlu_pro-1", "question": "?", "answer": "C", "choices": ["w", "x", "w", "y"],
        "answer_index": 2,
    }  # fmt: skip
    data = write(tmp_path / "mmlu_pro.jsonl", [question])
    answers = [
        {"id": "mmlu_pro-1", "response": "The answer is (A)."},
        {"id": "1", "response": "The answer is (B)."},
        {"id": "elsewhere", "response": "I do not know", "answer": "B"},
    ]
    file = write(tmp_path / "x.jsonl", answers)
    for place in (data, str(tmp_path)):
        done = run(file, "--benchmark", "mmlu_pro", "--data", place, "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["correct"] for line in lines] == [True, False, False]
        assert [line["prediction"] for line in lines] == ["A", "B", None]


@pytest.mark.parametrize(
    ("lines", "benchmark", "message"),
    [
        ('{"id": "a"}\n', "math", "line 1: the key 'response' is missing"),
        ('{"id": "a", "response": "5"}\n', "math", "no key is at hand for id 'a'"),
        (
            '\n{"id": "a", "response": 5, "answer": "5"}\n',
            "math",
            "line 2: response: expected a string",
        ),
        ("{oops\n", "math", "line 1: not valid JSON"),
        ('{"id": "a", "response": "5", "answer": "5"}\n', "maths", "choose from amc23"),
        (
            '{"id": "a", "response": "5", "answer": "5"}\n',
            "humaneval",
            "is no problem of humaneval",
        ),
    ],
)
def test_mistakes_end_in_one_sentence(
    lines: str, benchmark: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(lines)
    done = run(str(file), "--benchmark", benchmark)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_lone_surrogate_neither_ends_nor_changes_the_output(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", [{"id": "\ud800", "response": "\ud800 5", "answer": "5"}])
    done = run(file, "--benchmark", "math")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == "\ud800"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b"5", "holds no list of questions"),
        ("x.json", b'{"rows": []}', "holds no list of questions"),
        ("x.json", b"{", "cannot be read (JSONDecodeError"),
        ("x.jsonl", b"[" * 200_000, "cannot be read (RecursionError"),
        ("x.jsonl", b"\xff", "cannot be read (UnicodeDecodeError"),
        ("x.jsonl.gz", gzip.compress(GOOD_ROW * 99)[:-9], "cannot be read (EOFError"),
        ("x.jsonl.gz", b"plain", "cannot be read (BadGzipFile"),
    ],
)
def test_a_damaged_benchmark_file_is_named(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    data = tmp_path / name
    data.write_bytes(content)
    file = write(tmp_path / "answers.jsonl", [{"id": "a", "response": "5", "answer": "5"}])
    done = run(file, "--benchmark", "gsm8k", "--data", str(data))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"{name} {message}" in done.stderr


def test_a_file_that_is_not_there() -> None:
    done = run("nowhere.jsonl", "--benchmark", "math")
    assert done.returncode == 2
    assert "nowhere.jsonl does not exist" in done.stderr
