"""Rows of several seeds, what ranks them, and what stands beside them."""

import statistics

import pytest

from limbeck.comparison import summary as comparison_summary
from limbeck.core.studies import ComparedTeacher, ComparisonCell, Costs, Evaluation, Scores


def summarise_comparison(cells, teacher, evaluation, costs):
    found = comparison_summary.summarise_comparison(
        list(map(ComparisonCell.read, cells)),
        ComparedTeacher.read(teacher),
        None if evaluation is None else Evaluation.read(evaluation),
        None if costs is None else Costs.read(costs),
    )
    return found.to_plain()


def pool_models(entries):
    return comparison_summary.pool_scores(list(map(Scores.read, entries))).to_plain()


def figures(*values):
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "runs": list(values)}


def model(name, scores, retention=None, of=("cola", "rte"), **averages):
    """An entry of a summary, each score the mean of two fine-tunings a point away from it."""
    runs = {key: (score - 1, score + 1) for key, score in scores.items()}
    columns = {key: {**figures(*pair), "metrics": {"accuracy": figures(*pair)}} for key, pair in runs.items()}
    found = {key: {**figures(value), "of": list(of), "complete": True} for key, value in averages.items()}
    nothing = {"average": None, "without_cola": None}
    return {"name": name, "columns": columns, "averages": nothing | found, "retention": retention or {}}


def cell(method, mapping, seed, *, student="3x384", status="finished", problem=None, **held_out):
    title = f"{method}, {mapping} on {student}, seed {seed}"
    return {
        "student": student, "method": method, "mapping": mapping, "seed": seed, "status": status, "problem": problem,
        "title": title, "model": title, "shape": f"bert {student}, 12 heads, FFN 1536", "tokens": 1000, "seconds": 2.0,
        "held_out": held_out, "unavailable": {},
    }  # fmt: skip


TEACHER = {
    "name": "teacher",
    "title": "The teacher",
    "shape": "bert 12x768, 12 heads, FFN 3072",
    "held_out": {"agreement": 1.0},
}
COLUMNS = [
    {"key": key, "title": key.upper(), "metric": "accuracy", "detail": False, "kind": "classification"}
    for key in ("cola", "rte")
]


def evaluation(*models, published=()):
    return {
        "preset": "quick",
        "columns": COLUMNS,
        "models": list(models),
        "published": list(published),
        "notes": ["a note"],
    }


def test_seeds_are_pooled_by_their_means():
    scores = [{"cola": 40.0, "rte": 60.0}, {"cola": 44.0, "rte": 65.0}, {"rte": 70.0}]
    found = pool_models(
        [model(str(seed), score, {"rte": score["rte"] / 2}, average=50.0 + seed) for seed, score in enumerate(scores)]
    )
    rte = found["columns"]["rte"]
    assert rte["mean"] == 65.0 and rte["deviation"] == pytest.approx(5.0) and rte["runs"] == [60.0, 65.0, 70.0]
    assert rte["metrics"]["accuracy"]["mean"] == 65.0
    assert found["columns"]["cola"]["runs"] == [40.0, 44.0]
    assert found["averages"]["average"]["runs"] == [50.0, 51.0, 52.0]
    assert found["averages"]["without_cola"] is None
    assert found["retention"] == {"rte": 32.5}


def test_one_seed_keeps_the_deviation_of_its_fine_tunings():
    found = pool_models([model("a", {"rte": 60.0})])
    assert found["columns"]["rte"]["deviation"] == pytest.approx(2**0.5)


def test_an_average_over_fewer_tasks_is_left_out_of_the_mean():
    found = pool_models([model("a", {}, average=50.0), model("b", {}, of=("rte",), average=90.0)])
    assert found["averages"]["average"]["runs"] == [50.0]


def test_rows_are_ranked_within_a_student_and_the_best_mapping_marked():
    averages = {"last": 79.0, "uniform": 81.0, "single": 80.0}
    cells = [cell("hidden_states", mapping, 1) for mapping in averages]
    cells += [cell("minilmv2", "layer L", 1), cell("minilmv2", "layer L", 1, student="2x384")]
    scores = [*averages.values(), 81.0, 10.0]
    models = [
        model(entry["name" if "name" in entry else "model"], {}, average=70.0, without_cola=score)
        for entry, score in zip(cells, scores, strict=True)
    ]
    summary = summarise_comparison(cells, TEACHER, evaluation(model("teacher", {}, average=80.0), *models), None)
    assert summary["main"] == {
        "kind": "averages", "key": "without_cola", "title": "average without CoLA", "of": ["cola", "rte"]
    }  # fmt: skip
    first, second = summary["blocks"]
    assert [(row["mapping"], row["rank"], row["best_mapping"]) for row in first["rows"]] == [
        ("last", 4, False), ("uniform", 1, True), ("single", 3, False), ("layer L", 1, False)
    ]  # fmt: skip
    assert [row["rank"] for row in second["rows"]] == [1]


def test_a_row_without_all_tasks_has_no_rank():
    cells = [cell("a", "", 1), cell("b", "", 1)]
    models = [
        model(cells[0]["model"], {}, of=("rte", "cola"), average=50.0),
        model(cells[1]["model"], {}, of=("rte",), average=90.0),
    ]
    [block] = summarise_comparison(cells, TEACHER, evaluation(*models), None)["blocks"]
    assert [row["rank"] for row in block["rows"]] == [1, None]


def test_without_tasks_held_out_text_ranks():
    cells = [
        cell("a", "", 1, agreement=0.5),
        cell("a", "", 2, agreement=0.7),
        cell("b", "", 1, agreement=0.65),
        cell("b", "", 2),
    ]
    summary = summarise_comparison(cells, TEACHER, None, None)
    assert summary["main"]["title"] == "held-out agreement"
    assert [row["rank"] for row in summary["blocks"][0]["rows"]] == [2, 1]
    assert summary["blocks"][0]["rows"][0]["main"]["deviation"] == pytest.approx(0.02**0.5)
    assert summary["teacher"]["main"]["mean"] == 1.0
    only_relations = summarise_comparison(
        [cell("a", "", 1, relations=0.5), cell("b", "", 1, relations=0.4)], TEACHER, None, None
    )
    assert [row["rank"] for row in only_relations["blocks"][0]["rows"]] == [2, 1], "less is better"


def test_a_failed_run_is_counted_and_said():
    cells = [cell("a", "", 1, agreement=0.5), cell("a", "", 2, status="failed", problem="out of memory")]
    cells += [cell("b", "", seed, status="failed", problem="out of memory") for seed in (1, 2)]
    summary = summarise_comparison(cells, TEACHER, evaluation(), None)
    first, second = summary["blocks"][0]["rows"]
    assert (first["finished"], first["wanted"], first["seeds"]) == (1, 2, [1])
    assert (second["finished"], second["rank"], second["tokens"]) == (0, None, None)
    assert summary["notes"] == ["3 runs failed (first a,  on 3x384, seed 2): out of memory", "a note"]


def test_published_rows_and_costs_stand_beside_their_student():
    published = [{"paper": "p", "table": "1", "shape": f"{layers}x384", "model": "x"} for layers in (3, 6)]
    costs = {
        "models": [{"model": "3x384", "parameters": 17}, {"model": "teacher", "parameters": 109}],
        "timings": [
            {"model": "3x384", "batch": 32, "length": 128, "speedup": 5.3},
            {"model": "teacher", "batch": 32, "length": 128, "speedup": 1.0},
        ],
    }  # fmt: skip
    summary = summarise_comparison([cell("a", "", 1)], TEACHER, evaluation(published=published), costs)
    assert summary["blocks"][0]["published"] == published[:1]
    assert summary["blocks"][0]["cost"] == {
        "parameters": 17,
        "speedups": [{"batch": 32, "length": 128, "speedup": 5.3}],
    }
    assert summary["teacher"]["cost"]["parameters"] == 109


def test_retention_needs_the_teacher():
    cells = [cell("a", "", 1), cell("b", "", 1)]
    models = [model(entry["model"], {"rte": 50.0}, {"rte": 100.0}) for entry in cells]
    with_teacher = summarise_comparison(cells, TEACHER, evaluation(model("teacher", {"rte": 50.0}), *models), None)
    without = summarise_comparison(cells, TEACHER, evaluation(*models), None)
    assert [row["retention"] for row in with_teacher["blocks"][0]["rows"]] == [{"rte": 100.0}] * 2
    assert [row["retention"] for row in without["blocks"][0]["rows"]] == [{}] * 2


def test_a_measure_that_could_not_be_had_is_said_once():
    reasons = {"agreement": "too little text", "retrieval": "too little text", "layers": "no text"}
    cells = [cell("a", "", seed) | {"unavailable": reasons} for seed in (1, 2)]
    notes = summarise_comparison(cells, TEACHER, None, None)["notes"]
    assert notes == ["Held-out agreement, retrieval: too little text", "Held-out layers: no text"]
