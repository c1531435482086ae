"""`limbeck compare`: methods, layer mappings, students and seeds side by side, from one plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from limbeck.api.requests.compare import CompareRequest
from limbeck.cli.command import request_command
from limbeck.cli.messages import Messages, print_result

if TYPE_CHECKING:
    from limbeck.comparison.checks import CheckedPlan


@request_command(
    CompareRequest,
    "limbeck compare recipes/compare-methods.yaml --dry-run",
    "limbeck compare plan.yaml --data data/ --output runs/methods --set budget.tokens=10000000 --set 'seeds=[1, 2, 3]'",
    options="plan output data overrides device dry_run",
)
def compare(
    request: CompareRequest,
    messages: Messages,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan and list its runs; run nothing.")] = False,
) -> None:
    """Distil students by several methods under one token budget, evaluate them, and show one table."""
    request = messages.of(request)
    if dry_run:
        _show_plan(request, messages.as_json)
        return
    from limbeck.api.comparing import carry_out_comparison

    result = carry_out_comparison(request)
    content: dict[str, Any] = {
        "summary": result.record["summary"],
        "costs": result.record["costs"],
        "impossible": result.record["impossible"],
        "failed": result.failed,
        "files": [str(path) for path in result.files],
    }
    print_result(messages.as_json, content, result.blocks(), f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)


def _show_plan(request: CompareRequest, as_json: bool) -> None:
    """Check a plan, and list the runs that it asks for and those that are impossible."""
    from limbeck.comparison.load import load_plan
    from limbeck.comparison.places import check_places

    loaded = load_plan(request.plan, request.overrides, data=request.data)
    check_places(loaded, output=None)
    # Torch is imported from here on, which takes seconds: what the plan alone shows to be wrong was said before.
    from limbeck.comparison.checks import check_plan
    from limbeck.comparison.student_evaluation import check_tasks

    checked = check_plan(loaded)
    check_tasks(checked.plan.evaluation, read=False)
    print_result(as_json, _plan_content(checked), (), *_plan_lines(checked))


def _plan_content(checked: CheckedPlan) -> dict[str, Any]:
    """Return a checked plan for `--json`: its combinations, those that are impossible, and the tokens of each run."""
    combinations = []
    for combination in checked.combinations:
        shares = list(combination.variant.shares)
        combinations.append({**combination.parts, "seeds": checked.plan.seeds, "shares": shares})
    impossible = [entry.to_dict() for entry in checked.impossible]
    return {"runs": combinations, "impossible": impossible, "tokens": checked.plan.budget.tokens}


def _plan_lines(checked: CheckedPlan) -> Iterator[str | Text]:
    """Yield the lines on a checked plan: each combination with its stages, what is left out, and the numbers."""
    plan = checked.plan
    for combination, run in checked.runs:
        yield combination.title
        yield from _stage_lines(run.summary(), combination.variant.shares)
    for entry in checked.impossible:
        # The titles of student, method and mapping, and the reason; a method may have no mapping.
        parts = ", ".join(text for text in entry.to_dict().values() if text)
        yield f"left out: {parts}"

    counts = f"{len(checked.runs)}"
    if checked.impossible:
        counts += f"; {len(checked.impossible)} left out"
    runs_with_seeds = len(checked.runs) * len(plan.seeds)
    yield (
        f"Combinations: {counts}. Seeds: {len(plan.seeds)}. "
        f"Runs: {runs_with_seeds}, of {plan.budget.tokens:,} tokens each."
    )
    yield Text("The plan is valid.", style="green")


def _stage_lines(summary: Mapping[str, str], shares: Sequence[float]) -> list[str]:
    """Return a line for each stage of a run, with its share of the tokens."""
    stages = [f"{name}: {text}" for name, text in summary.items() if name.startswith("stage")]
    return [f"  {share:.0%} {stage}" for share, stage in zip(shares, stages, strict=False)]
