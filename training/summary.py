"""From stage results to the table of a run: one row an outer iteration (0 = the base model)."""

from collections.abc import Mapping
from typing import Any

COLUMNS: dict[str, tuple[str, str]] = {
    "greedy": ("evaluation", "greedy"),
    "mean_at_8": ("evaluation", "mean_at_8"),
    "v_adv": ("executor", "v_adv"),
    "positive_gap_share": ("curriculum", "positive_gap_share"),
    "unresolved_share": ("executor", "unresolved_share"),
    "format_valid_share": ("task_pool", "format_valid_share"),
    "mean_tool_calls": ("evaluation", "mean_tool_calls"),
    "distinct_task_share": ("task_pool", "distinct_task_share"),
    "top_answer_share": ("evaluation", "top_answer_share"),
    "in_grammar_share": ("evaluation", "in_grammar_share"),
    "held_out_overlap": ("evaluation", "held_out_overlap"),
}
"""Column of the table → stage and metric it is read from."""

Results = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""iteration → stage → result.json"""


def iteration_rows(results: Results) -> list[dict[str, Any]]:
    """Rows for summary.json, the final table and the MLflow parent run, shares as fractions.

    A number that is not defined (V_adv of the base model, say) is None. ``seconds`` is the cost of
    the iteration's stages, whoever computed them first.
    """
    rows = []
    for iteration in sorted(results):
        stages = results[iteration]
        row: dict[str, Any] = {"iteration": iteration}
        for column, (stage, metric) in COLUMNS.items():
            row[column] = stages.get(stage, {}).get("metrics", {}).get(metric)
        row["seconds"] = sum(result["seconds"] for result in stages.values())
        rows.append(row)
    return rows
