"""`summarise_comparison`: what the tables of a comparison print, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.stats import rankdata

from limbeck.comparison.held_out import MEASURES
from limbeck.evaluation.grid_summary import Runs

# The runs of a combination that differ in their seed, as one row: means and deviations of what `summarise` gives.


Figures = dict[str, Any]
"""`mean`, `deviation` (None of one run) and `runs`, as `limbeck.evaluation.grid_summary` has them."""


def figures(values: Iterable[float]) -> Figures:
    """Return mean and sample deviation of values.

    Args:
        values: At least one.
    """
    runs = Runs(tuple(values))
    return {"mean": runs.mean, "deviation": runs.deviation, "runs": list(runs.values)}


def pool_models(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pool the summaries of students that differ in the seed of their distillation.

    A student's figure is its mean over fine-tunings. Of several students the mean is over these, and the deviation too;
    of one it is over its fine-tunings.

    Args:
        entries: As in `models` of a summary.

    Returns:
        `columns`, `averages` and `retention`, as one of them has it.
    """
    if len(entries) == 1:
        return {name: entries[0][name] for name in ("columns", "averages", "retention")}
    columns = {
        key: _pooled_column([entry["columns"][key] for entry in entries if key in entry["columns"]])
        for key in _keys(entry["columns"] for entry in entries)
    }
    averages = {
        name: _pooled_average([entry["averages"][name] for entry in entries if entry["averages"][name] is not None])
        for name in _keys(entry["averages"] for entry in entries)
    }
    # What is kept is linear in the score: the mean of what each keeps is what the mean keeps.
    kept = {
        key: figures(entry["retention"][key] for entry in entries if key in entry["retention"])["mean"]
        for key in _keys(entry["retention"] for entry in entries)
        # A student below 0 has none, and the mean of the others would flatter.
        if all(key in entry["retention"] for entry in entries if key in entry["columns"])
    }
    return {"columns": columns, "averages": averages, "retention": kept}


def _pooled_column(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    metrics = {
        metric: figures(cell["metrics"][metric]["mean"] for cell in cells if metric in cell["metrics"])
        for metric in _keys(cell["metrics"] for cell in cells)
    }
    return {**figures(cell["mean"] for cell in cells), "metrics": metrics}


def _pooled_average(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Pool averages over the same tasks: where a student lacks one, it is left out of the average."""
    if not found:
        return None
    widest = max((average["of"] for average in found), key=len)
    alike = [average for average in found if average["of"] == widest]
    complete = all(average["complete"] for average in alike)
    return {**figures(average["mean"] for average in alike), "of": widest, "complete": complete}


def _keys(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


Entry = Mapping[str, Any]
_NOTHING: dict[str, Any] = {"columns": {}, "averages": {"average": None, "without_cola": None}, "retention": {}}
_AVERAGES = {"without_cola": "average without CoLA", "average": "average"}


def summarise_comparison(
    cells: Sequence[Entry],
    teacher: Entry,
    evaluation: Mapping[str, Any] | None,
    costs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Make the tables' content: a block for each student, with a row for each method and mapping.

    Args:
        cells: Of the record, those of a combination one after the other.
        teacher: Of the record: its name, shape and held-out figures.
        evaluation: As `limbeck.evaluation.grid_summary.summarise` gives it; None where no task was evaluated.
        costs: As `measure_costs_once` gives them.

    Returns:
        `preset`, `columns`, `held_out` (the measures), `main` (what ranks the rows), `teacher`, `blocks` and `notes`.
    """
    models = {model["name"]: model for model in (evaluation or {"models": []})["models"]}
    columns = list((evaluation or {"columns": []})["columns"])
    rows = [_row(group, models) for group in _groups(cells)]
    main = _main([row for row in rows if row["finished"]], columns)
    of_teacher = models.get(teacher["name"])
    reference = {
        **({name: of_teacher[name] for name in ("columns", "averages")} if of_teacher else _NOTHING),
        "retention": {},
        "held_out": _held_out([teacher]),
        **{name: teacher[name] for name in ("name", "title", "shape")},
        "cost": _cost(costs, teacher["name"]),
    }
    if of_teacher is None:
        for row in rows:  # Without the teacher the first student would be what the others are compared with.
            row["retention"] = {}
    reference["main"] = _main_figure(reference, main)
    blocks = []
    for student in dict.fromkeys(row["student"] for row in rows):
        own = [row for row in rows if row["student"] == student]
        _rank(own, main)
        size = own[0]["shape"].split(",")[0].split()[-1]
        published = [row for row in (evaluation or {"published": []})["published"] if row["shape"] == size]
        blocks.append(
            {
                "student": student,
                "shape": own[0]["shape"],
                "cost": _cost(costs, student),
                "rows": own,
                "published": published,
            }
        )
    return {
        "preset": evaluation["preset"] if evaluation else None,
        "columns": columns,
        "held_out": _measures(rows),
        "main": main,
        "teacher": reference,
        "blocks": blocks,
        "notes": [*_failures(cells), *_unavailable(cells), *(evaluation or {"notes": []})["notes"]],
    }


def _groups(cells: Sequence[Entry]) -> list[list[Entry]]:
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for cell in cells:
        found.setdefault((cell["student"], cell["method"], cell["mapping"]), []).append(cell)
    return list(found.values())


def _row(group: Sequence[Entry], models: Mapping[str, Entry]) -> dict[str, Any]:
    """One method and mapping: its finished runs, pooled over seeds."""
    done = [cell for cell in group if cell["status"] == "finished"]
    scored = [models[cell["model"]] for cell in done if cell["model"] in models]
    return {
        **{name: group[0][name] for name in ("student", "method", "mapping", "shape")},
        **(pool_models(scored) if scored else _NOTHING),
        "held_out": _held_out(done),
        "seeds": [cell["seed"] for cell in done],
        "finished": len(done),
        "wanted": len(group),
        "tokens": figures(cell["tokens"] for cell in done) if done else None,
        "seconds": figures(cell["seconds"] for cell in done) if done else None,
    }


def _held_out(cells: Sequence[Entry]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in MEASURES:
        values = [(cell["held_out"] or {}).get(measure.key) for cell in cells]
        if known := [value for value in values if value is not None]:
            found[measure.key] = figures(known)
    return found


def _measures(rows: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {"key": measure.key, "title": measure.title, "digits": measure.digits, "best": measure.best}
        for measure in MEASURES
        if any(measure.key in row["held_out"] for row in rows)
    ]


def _main(rows: Sequence[Entry], columns: Sequence[Entry]) -> dict[str, Any] | None:
    """What ranks the rows: the average without CoLA as in the comparative study's table 3, else the average, else the
    first task, else the first held-out measure.

    Of averages it says of which tasks: those of the row with the most.
    """
    for name, title in _AVERAGES.items():
        if known := [average for row in rows if (average := row["averages"].get(name))]:
            return {"kind": "averages", "key": name, "title": title, "of": max((a["of"] for a in known), key=len)}
    for column in columns:
        if not column["detail"] and any(column["key"] in row["columns"] for row in rows):
            return {"kind": "columns", "key": column["key"], "title": column["title"]}
    for measure in MEASURES:
        if any(measure.key in row["held_out"] for row in rows):
            return {
                "kind": "held_out", "key": measure.key, "title": f"held-out {measure.title}",
                "digits": measure.digits, "best": measure.best,
            }  # fmt: skip
    return None


def _main_figure(row: Entry, main: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The figure that a row is ranked by; None where it has none, or one over fewer tasks than others."""
    found = row[main["kind"]].get(main["key"]) if main is not None else None
    if found is None or main is None or ("of" in main and found["of"] != main["of"]):
        return None
    return {name: found[name] for name in ("mean", "deviation", "runs")}


def _rank(rows: Sequence[dict[str, Any]], main: Mapping[str, Any] | None) -> None:
    """Rank the rows of a student, 1 the best, and mark the best mapping of each method that has several."""
    for row in rows:
        row["main"], row["rank"], row["best_mapping"] = _main_figure(row, main), None, False
    ranked = [row for row in rows if row["main"] is not None]
    if not ranked or main is None:
        return
    sign = 1 if main.get("best") == "lowest" else -1
    ranks = rankdata([sign * row["main"]["mean"] for row in ranked], method="min")
    for row, rank in zip(ranked, ranks, strict=True):
        row["rank"] = int(rank)
    for row in ranked:
        rivals = [other["rank"] for other in ranked if other["method"] == row["method"]]
        row["best_mapping"] = len(rivals) > 1 and row["rank"] == min(rivals)


def _cost(costs: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    """Parameters, and the speedup at each batch size and length."""
    if costs is None:
        return None
    sizes = [row for row in costs["models"] if row["model"] == name]
    return (
        {
            "parameters": sizes[0]["parameters"],
            "speedups": [
                {"batch": row["batch"], "length": row["length"], "speedup": row["speedup"]}
                for row in costs["timings"]
                if row["model"] == name and row["speedup"] is not None
            ],
        }
        if sizes
        else None
    )


def _failures(cells: Sequence[Entry]) -> list[str]:
    """Say which runs failed, and why, once for each reason."""
    failed: dict[str, list[str]] = {}
    for cell in cells:
        if cell["status"] == "failed":
            failed.setdefault(cell["problem"], []).append(cell["title"])
    return [
        f"{len(titles)} {'run' if len(titles) == 1 else 'runs'} failed (first {titles[0]}): {problem}"
        for problem, titles in failed.items()
    ]


def _unavailable(cells: Sequence[Entry]) -> list[str]:
    """Say which held-out measures could not be had, and why, once for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in cells:
        for measure, reason in cell["unavailable"].items():
            reasons.setdefault(reason, {})[measure] = None
    return [f"Held-out {', '.join(measures)}: {reason}" for reason, measures in reasons.items()]
