"""Whether a run's own figures order students as tasks do: Spearman with SICK and with SQuAD's MRR@10.

Each run has measured its student on the text that it held out, by passage retrieval and by agreement from far pairs to
near ones (`limbeck distill`). The same students are scored on SICK and on SQuAD's paragraphs, which no run has seen.
The correlations of the figures with the tasks stand beside that of the two tasks with each other, which no figure can
be expected to exceed by much.

    python benchmarks/own_figures.py RUNS … --data DATA --work runs/own-figures --output own_figures.json
    python benchmarks/own_figures.py --output own_figures.json --table

RUNS are folders of runs, or folders with runs in them, all of one teacher and one held-out text. DATA has SICK and
SQuAD, as `limbeck evaluate` finds them. A stopped evaluation goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

FIGURES = ("retrieval", "agreement")
TASKS = ("sick_cosine", "squad_retrieval")
METRICS = {"sick_cosine": "spearman", "squad_retrieval": "mrr_at_10"}
FEWEST_STUDENTS = 3
"""Fewest students whose order has a correlation."""


@dataclass(frozen=True)
class MeasuredStudent:
    """A student with the figures of its run and its scores on the tasks, 0 to 1 or in percent.

    Args:
        name: Name of the run's folder.
        figures: The run's own figures, by `FIGURES`.
        start: The same figures of the untrained start.
        scores: The scores, by `TASKS`.
    """

    name: str
    figures: dict[str, float]
    start: dict[str, float]
    scores: dict[str, float]


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Return the runs with a student, each once, that are these folders or lie directly in them."""
    runs: dict[Path, None] = {}
    for folder in folders:
        for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
            if (place / "run.json").is_file() and (place / "student").is_dir():
                runs[place] = None
    return list(runs)


def read_figures(run: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return a run's own figures and those of its untrained start, from its record.

    Raises:
        SystemExit: for a run that was measured by an earlier version, or has no figure.
    """
    from limbeck.core.records import Run, load

    evaluation = load(Run, run).evaluation
    if evaluation is None or evaluation.agreement is None or evaluation.student.retrieval is None:
        sys.exit(f"'{run}' has no agreement or no retrieval; distil it with evaluation.quality.")
    if evaluation.agreement.measure is None:
        sys.exit(f"'{run}' was measured by an earlier version, whose figures are others; distil it again.")
    figures = {"retrieval": evaluation.student.retrieval.mrr_at_10, "agreement": evaluation.agreement.spearman}
    start: dict[str, float] = {}
    if evaluation.start is not None and evaluation.start.retrieval is not None:
        start["retrieval"] = evaluation.start.retrieval.mrr_at_10 or 0.0
    if evaluation.start is not None and evaluation.start.agreement is not None:
        start["agreement"] = evaluation.start.agreement.spearman or 0.0
    return {name: float(value or 0.0) for name, value in figures.items()}, start


def score_students(runs: Sequence[Path], data: Path, work: Path) -> list[MeasuredStudent]:
    """Score the students of runs on the tasks."""
    import limbeck

    students = []
    for run in runs:
        figures, start = read_figures(run)
        output = work / run.name
        result = limbeck.evaluate(str(run / "student"), tasks=list(TASKS), data=data, output=output)
        [model] = result.evaluation.models
        scores = {}
        for task in TASKS:
            figure = model.columns[task].metrics[METRICS[task]]
            scores[task] = float(figure.mean or 0.0)
        students.append(MeasuredStudent(run.name, figures, start, scores))
        print(f"{run.name}: {figures} {scores}", flush=True)
    return students


def correlate(students: Sequence[MeasuredStudent]) -> dict[str, float]:
    """Return Spearman's correlation over students of each figure with each task, and of the tasks with each other."""
    by_name = {task: [student.scores[task] for student in students] for task in TASKS}
    correlations = {}
    for figure in FIGURES:
        values = [student.figures[figure] for student in students]
        for task in TASKS:
            correlations[f"{figure} with {task}"] = float(spearmanr(values, by_name[task]).statistic)
    first, second = TASKS
    correlations[f"{first} with {second}"] = float(spearmanr(by_name[first], by_name[second]).statistic)
    return correlations


def table(results: Mapping[str, Any]) -> str:
    """Return the results as two tables in Markdown."""
    lines = ["| student | retrieval | agreement | SICK | SQuAD MRR@10 |", "|---|--:|--:|--:|--:|"]
    for student in results["students"]:
        values = [*student["figures"].values(), *student["scores"].values()]
        lines.append(f"| {student['name']} | {' | '.join(f'{value:.3f}' for value in values)} |")
    lines += ["", "| correlation (Spearman) | |", "|---|--:|"]
    for name, value in results["correlations"].items():
        lines.append(f"| {name} | {value:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Score students, or print the table of an earlier call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/own-figures"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        runs = find_runs(arguments.runs)
        if len(runs) < FEWEST_STUDENTS:
            print(
                f"{len(runs)} runs: an order of fewer than {FEWEST_STUDENTS} students has no meaning", file=sys.stderr
            )
        students = score_students(runs, arguments.data, arguments.work)
        results = {"students": [asdict(student) for student in students], "correlations": correlate(students)}
        arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(json.loads(arguments.output.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
