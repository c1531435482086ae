"""`limbeck compare`: methods, layer mappings, students and seeds side by side, from one plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limbeck.cli.messages import print_json, print_line, progress_console, result_console
from limbeck.cli.options import Json, Quiet, Verbose, with_examples

if TYPE_CHECKING:
    from limbeck.comparison.cells import CheckedPlan

Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override a value: --set budget.tokens=1e7")
]


@with_examples(
    "limbeck compare recipes/compare-methods.yaml --dry-run",
    "limbeck compare plan.yaml --data data/ --output runs/methods --set budget.tokens=10000000 --set 'seeds=[1, 2, 3]'",
)
def compare(
    plan: Annotated[Path, typer.Argument(help="The plan (YAML).")],
    output: Annotated[
        Path | None, typer.Option(help="The comparison's folder; what is finished in it is not done again.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with the tasks' files, or `hub`; wins over the plan's.")
    ] = None,
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan and list its runs; run nothing.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Distil students by several methods under one token budget, evaluate them, and lay out one table."""
    progress = progress_console(quiet, verbose)
    if dry_run:
        from limbeck.comparison.cells import check_plan
        from limbeck.comparison.plan import load_plan
        from limbeck.comparison.run import check_tasks

        checked = check_plan(load_plan(plan, overrides or [], data=data))
        check_tasks(checked.plan.evaluation, read=False)
        _show_plan(checked, as_json)
        return
    from limbeck.api import compare as run_comparison
    from limbeck.errors import RecipeError
    from limbeck.report.comparison_tables import methods_table

    if output is None:
        raise RecipeError("The comparison has no folder; give --output DIR, or --dry-run to check the plan only.")
    result = run_comparison(plan, overrides or [], output=output, data=data, console=progress)
    if as_json:
        content = {"summary": result.record["summary"], "costs": result.record["costs"], "failed": result.failed}
        left_out = {"impossible": result.record["impossible"], "files": [str(path) for path in result.files]}
        print_json({**content, **left_out})
    else:
        result_console().print(methods_table(result.record))
        print_line(f"Tables: {result.files[0]}")
    if result.failed:
        raise typer.Exit(1)


def _show_plan(checked: CheckedPlan, as_json: bool) -> None:
    """List what would run, and what cannot."""
    from limbeck.recipe.plan import summarise

    plan, impossible = checked.plan, [found.to_plain() for found in checked.impossible]
    if as_json:
        runs = [
            {**combination.parts, "seeds": plan.seeds, "shares": list(combination.variant.shares)}
            for combination in checked.combinations
        ]
        print_json({"runs": runs, "impossible": impossible, "tokens": plan.budget.tokens})
        return
    lines = []
    for combination, run in checked.runs:
        lines.append(combination.title)
        shares = iter(combination.variant.shares)
        described = summarise(run).items()
        lines += [f"  {next(shares):.0%} {name}: {text}" for name, text in described if name.startswith("stage")]
    lines += [f"left out: {', '.join(filter(None, entry.values()))}" for entry in impossible]
    count = len(checked.runs) * len(plan.seeds)
    left_out = f"; {len(impossible)} left out" if impossible else ""
    lines.append(
        f"Combinations: {len(checked.runs)}{left_out}. Seeds: {len(plan.seeds)}. Runs: {count}, of "
        f"{plan.budget.tokens:,} tokens each."
    )
    for line in lines:
        print_line(line)
    print_line("The plan is valid.", style="green")
