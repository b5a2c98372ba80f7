"""`anchorloop evaluate`: score any model on the benchmarks, by the stage that runs end with."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.errors import UserError

if TYPE_CHECKING:
    from tasks.watch import Progress
    from training.config import ExperimentConfig

_PROFILE = "qwen3-4b"  # the paper's limits, for a model that is no profile's


def evaluate(
    model: Annotated[str, typer.Argument(help="A profile's name, a model folder, or a hub id.")],
    benchmarks: Annotated[
        str, typer.Option(help="Names separated by commas, or `math`, `general`, `all`.")
    ] = "all",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first questions of each benchmark.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with a file or folder a benchmark.")
    ] = None,
    tool: Annotated[bool, typer.Option(help="Whether the model has the Python tool.")] = True,
    reference: Annotated[
        str | None,
        typer.Option(help="Base gate: scores in per cent, such as math500=68.6,gsm8k=88.5."),
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Points a reference may be off.")] = 2.0,
    seed: Annotated[int, typer.Option(help="All sampling derives from it.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any value of the configuration."),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option(help="Where it runs: local or docker; default: as it began, else local."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image of --launcher docker; default: anchorloop-gpu.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report.")] = False,
) -> None:
    """Evaluate a model; the same command goes on with one that was interrupted."""
    from tasks.launchers import launcher as place_of
    from tasks.runs import RunError, create, driving
    from tasks.stage import StageFailed, run_stage
    from tasks.tracked import open_parent
    from training.errors import ConfigError, StageError

    references = _references(reference)
    _log_to_terminal()
    try:
        config = _config(model, _names(benchmarks), limit, data, tool, seed, set_ or [])
        name = _run_name(model, config)
        settings = create(config, name, study="evaluation", where=launcher, image=image)
        place_of(settings.launcher, settings.image).image()
        with driving(name) as run:
            open_parent(run, None)
            run_stage(run, run.entry(0, "base_model"))
            outcome = run_stage(run, run.entry(0, "evaluation"), _show)
            run.tracker.close()
    except (RunError, ConfigError) as error:
        raise UserError(str(error)) from None
    except (StageFailed, StageError) as error:
        print(f"anchorloop: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    report = json.loads((Path(outcome.path) / "scores.json").read_text(encoding="utf-8"))
    report["gate"] = _gate(config, report, references, tolerance)
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        _print(report, Path(outcome.path))


def _log_to_terminal() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("anchorloop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _names(text: str) -> list[str]:
    from training.benchmarks.catalog import BENCHMARKS, members

    groups = {
        "math": members("math"),
        "general": members("general"),
        "all": members("math") + members("general"),
    }
    names: list[str] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        names += groups.get(item, (item,))
    for name in names:
        if name not in BENCHMARKS:
            raise UserError(
                f"no benchmark is called {name!r}; choose from {', '.join(BENCHMARKS)}, "
                f"or {', '.join(groups)}"
            )
    if not names:
        raise UserError("--benchmarks names none; leave it out for all thirteen")
    return list(dict.fromkeys(names))


def _config(
    model: str,
    names: list[str],
    limit: int | None,
    data: Path | None,
    tool: bool,
    seed: int,
    assignments: list[str],
) -> ExperimentConfig:
    from training.benchmarks.loading import data_file, default_data_dir
    from training.config_load import load_config, merge, parse_assignments
    from training.config_load import names as known

    if data is not None and not data.is_dir():
        raise UserError(f"--data names {data}, which is not a folder")
    folder = data or default_data_dir()
    found = {n: data_file(n, folder) for n in names} if folder is not None else {}
    asked: dict[str, Any] = {
        "seed": seed,
        "iterations": 0,
        "rollout": {"tool": tool},
        "evaluation": {
            "benchmarks": names,
            "limit": limit,
            "files": {n: str(path) for n, path in found.items() if path is not None},
        },
    }
    profile = model
    if model not in known("profiles"):
        profile = _PROFILE
        source = "folder" if Path(model).is_dir() else "hub"
        where = str(Path(model).resolve()) if source == "folder" else model
        asked["model"] = {"source": source, "name": where}
        if not _has_gpu():
            asked["trainer"] = {"backend": "torch"}
            asked["model"]["dtype"] = "float32"
    return load_config(profile, "anchorloop", merge(asked, parse_assignments(assignments)))


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _run_name(model: str, config: ExperimentConfig) -> str:
    """A name that tells evaluations of other models and settings apart."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(model).name).strip("-.")[:40] or "model"
    dump = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return f"evaluate-{short}-{hashlib.sha256(dump.encode()).hexdigest()[:8]}"


def _references(text: str | None) -> dict[str, float] | None:
    if text is None:
        return None
    references = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        try:
            references[_names(name)[0]] = float(value)
        except ValueError:
            raise UserError(f"--reference {item!r} is not of the form benchmark=score") from None
    return references


def _gate(
    config: ExperimentConfig,
    report: dict[str, Any],
    references: dict[str, float] | None,
    tolerance: float,
) -> dict[str, Any] | None:
    """The base gate: by the given references, else where the paper reports this model untrained."""
    from training.benchmarks.base_gate import check_report

    gate = check_report(report, config.model.name, config.rollout.tool, references, tolerance)
    if gate is None:
        return None
    return {"comparable": gate.comparable, "reasons": list(gate.reasons)}


def _show(progress: Progress) -> None:
    if sys.stderr.isatty():
        print(f"\r{progress.done}/{progress.total} {progress.unit} ", end="", file=sys.stderr)


def _print(report: dict[str, Any], folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("benchmark", "score", "95 %", "n", "unparsed", "cut", "dropped", "tool calls")
    for name, score in report["benchmarks"].items():
        low, high = score["interval"]
        table.add_row(
            f"{name} {score['metric']}",
            f"{100 * score['value']:.1f}",
            f"{100 * low:.1f}–{100 * high:.1f}",
            f"{score['n']}/{score['expected']}",
            f"{score['unparsed']:.1%}",
            f"{score['truncated']:.1%}",
            str(score["infra"]),
            f"{score['tool_calls']:.2f}",
        )
    for name, reason in report["missing"].items():
        table.add_row(name, "missing", "", "", "", "", "", "")
        print(reason, file=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for family, average in report["averages"].items():
        if average["value"] is not None:
            mark = "" if average["complete"] else " (incomplete, not comparable)"
            print(f"{family} AVG {average['value']:.1f}{mark}")
    if report["gate"] is not None:
        print("base gate: comparable" if report["gate"]["comparable"] else "base gate:")
        for reason in report["gate"]["reasons"]:
            print(f"  {reason}")
    print(f"every response: {folder / 'benchmark_responses.jsonl'}")
