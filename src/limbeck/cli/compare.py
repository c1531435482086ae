"""`limbeck compare`: methods, layer mappings, students and seeds side by side, from one plan."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from limbeck.cli.messages import Messages, print_result
from limbeck.cli.options import Device, command
from limbeck.errors import RecipeError


@command(
    "limbeck compare recipes/compare-methods.yaml --dry-run",
    "limbeck compare plan.yaml --data data/ --output runs/methods --set budget.tokens=10000000 --set 'seeds=[1, 2, 3]'",
)
def compare(
    plan: Annotated[Path, typer.Argument(help="The plan (YAML).")],
    output: Annotated[Path | None, typer.Option(help="Output folder; finished runs in it are not run again.")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with the task files, or `hub`; overrides the plan's.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override a value: --set budget.tokens=1e7")
    ] = None,
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan and list its runs; run nothing.")] = False,
    *,
    messages: Messages,
) -> None:
    """Distil students by several methods under one token budget, evaluate them, and show one table."""
    console = messages.console()
    if dry_run:
        _show_plan(plan, overrides or [], data, messages.as_json)
        return
    from limbeck.api import compare as run_comparison

    if output is None:
        raise RecipeError("The comparison has no folder; give --output DIR, or --dry-run only to check the plan.")
    result = run_comparison(plan, overrides or [], output=output, data=data, console=console)
    from limbeck.report.comparison import methods_table

    content = {name: result.record[name] for name in ("summary", "costs", "impossible")}
    content |= {"failed": result.failed, "files": list(map(str, result.files))}
    print_result(messages.as_json, content, methods_table(result.record), f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)


def _show_plan(path: Path, overrides: list[str], data: str | None, as_json: bool) -> None:
    """Check a plan, and list what would run and what cannot."""
    from limbeck.comparison.folder import check_places
    from limbeck.comparison.plan import load_plan

    loaded = load_plan(path, overrides, data=data)
    check_places(loaded, None)
    from limbeck.comparison.cells import check_plan
    from limbeck.comparison.run import check_tasks
    from limbeck.recipe.plan import summarise

    checked = check_plan(loaded)
    check_tasks(checked.plan.evaluation, read=False)
    plan, impossible = checked.plan, [found.to_dict() for found in checked.impossible]
    runs = [
        {**combination.parts, "seeds": plan.seeds, "shares": list(combination.variant.shares)}
        for combination in checked.combinations
    ]
    lines = []
    for combination, run in checked.runs:
        lines.append(combination.title)
        shares = iter(combination.variant.shares)
        described = summarise(run).items()
        lines += [f"  {next(shares):.0%} {name}: {text}" for name, text in described if name.startswith("stage")]
    lines += [f"left out: {', '.join(filter(None, entry.values()))}" for entry in impossible]
    left_out = f"; {len(impossible)} left out" if impossible else ""
    lines.append(
        f"Combinations: {len(checked.runs)}{left_out}. Seeds: {len(plan.seeds)}. "
        f"Runs: {len(checked.runs) * len(plan.seeds)}, of {plan.budget.tokens:,} tokens each."
    )
    content = {"runs": runs, "impossible": impossible, "tokens": plan.budget.tokens}
    print_result(as_json, content, *lines, Text("The plan is valid.", style="green"))
