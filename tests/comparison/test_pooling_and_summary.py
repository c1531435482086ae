"""Rows of several seeds, what ranks them, and what stands beside them."""

import pytest

from limbeck.comparison.summary import pool_scores, summarise_comparison
from limbeck.core import studies
from limbeck.core.studies import Column, ComparisonCell, Costs, Evaluation, Figure

TEACHER = studies.ComparedTeacher(
    name="teacher", title="The teacher", shape="bert 12x768, 12 heads, FFN 3072", held_out={"agreement": 1.0}
)
COLUMNS = [Column(key=key, title=key.upper(), metric="accuracy", kind="classification") for key in ("cola", "rte")]


def model(name, scores, retention=None, of=("cola", "rte"), **averages):
    """A model of an evaluation, each score the mean of two fine-tunings a point away from it."""
    columns = {
        key: studies.ColumnFigure.of_runs(
            [score - 1, score + 1], metrics={"accuracy": Figure.of_runs([score - 1, score + 1])}
        )
        for key, score in scores.items()
    }
    found = studies.Averages(
        **{key: studies.Average.of_runs([value], of=list(of), complete=True) for key, value in averages.items()}
    )
    return studies.EvaluatedModel(name=name, columns=columns, averages=found, retention=retention or {})


def cell(method, mapping="", seed=1, *, student="3x384", status="finished", problem=None, unavailable=None, **held_out):
    title = f"{method}, {mapping} on {student}, seed {seed}"
    return ComparisonCell(
        student=student, method=method, mapping=mapping, seed=seed, status=status, problem=problem, title=title,
        model=title, shape=f"bert {student}, 12 heads, FFN 1536", tokens=1000, seconds=2.0, held_out=held_out,
        unavailable=unavailable or {},
    )  # fmt: skip


def evaluation(*models, published=()):
    values = {"preset": "quick", "columns": COLUMNS, "models": models, "published": published, "notes": ["a note"]}
    return Evaluation.read(values)


def rows_of(summary):
    return [row for block in summary.blocks for row in block.rows]


def test_seeds_are_pooled_by_their_means():
    scores = [{"cola": 40.0, "rte": 60.0}, {"cola": 44.0, "rte": 65.0}, {"rte": 70.0}]
    found = pool_scores(
        [model(str(seed), score, {"rte": score["rte"] / 2}, average=50.0 + seed) for seed, score in enumerate(scores)]
    )
    rte = found.columns["rte"]
    assert rte.mean == 65.0 and rte.deviation == pytest.approx(5.0) and rte.runs == [60.0, 65.0, 70.0]
    assert rte.metrics["accuracy"].mean == 65.0
    assert found.columns["cola"].runs == [40.0, 44.0]
    assert found.averages.average.runs == [50.0, 51.0, 52.0] and found.averages.without_cola is None
    assert found.retention == {"rte": 32.5}
    below_zero = pool_scores([model("a", {"rte": 1.0}, {"rte": 2.0}), model("b", {"rte": -1.0})])
    assert below_zero.retention == {}, "a student below 0 has none, and the mean of the others would flatter"


def test_one_seed_keeps_the_deviation_of_its_fine_tunings():
    assert pool_scores([model("a", {"rte": 60.0})]).columns["rte"].deviation == pytest.approx(2**0.5)


def test_rows_are_ranked_within_a_student_and_the_best_mapping_marked():
    averages = {"last": 79.0, "uniform": 81.0, "single": 80.0}
    cells = [cell("hidden_states", mapping) for mapping in averages]
    cells += [cell("minilmv2", "layer L"), cell("minilmv2", "layer L", student="2x384")]
    scores = [*averages.values(), 81.0, 10.0]
    models = [model(one.model, {}, average=70.0, without_cola=score) for one, score in zip(cells, scores, strict=True)]
    summary = summarise_comparison(cells, TEACHER, evaluation(model("teacher", {}, average=80.0), *models))
    assert summary.main.to_dict() == {
        "kind": "averages", "key": "without_cola", "title": "average without CoLA", "of": ["cola", "rte"]
    }  # fmt: skip
    first, second = summary.blocks
    assert [(row.mapping, row.rank, row.best_mapping) for row in first.rows] == [
        ("last", 4, False), ("uniform", 1, True), ("single", 3, False), ("layer L", 1, False)
    ]  # fmt: skip
    assert [row.rank for row in second.rows] == [1]


def test_an_average_over_fewer_tasks_is_neither_pooled_nor_ranked():
    models = [model("a", {}, average=50.0), model("b", {}, of=("rte",), average=90.0)]
    assert pool_scores(models).averages.average.runs == [50.0]
    cells = [cell("a"), cell("b")]
    for one, of_it in zip(cells, models, strict=True):
        of_it.name = one.model
    assert [row.rank for row in rows_of(summarise_comparison(cells, TEACHER, evaluation(*models)))] == [1, None]


def test_without_tasks_held_out_text_ranks():
    cells = [cell("a", agreement=0.5), cell("a", seed=2, agreement=0.7), cell("b", agreement=0.65), cell("b", seed=2)]
    summary = summarise_comparison(cells, TEACHER)
    assert summary.main.title == "held-out agreement"
    assert [row.rank for row in rows_of(summary)] == [2, 1]
    assert rows_of(summary)[0].main.deviation == pytest.approx(0.02**0.5)
    assert summary.teacher.main.mean == 1.0
    only_relations = summarise_comparison([cell("a", relations=0.5), cell("b", relations=0.4)], TEACHER)
    assert [row.rank for row in rows_of(only_relations)] == [2, 1], "less is better"


def test_a_failed_run_is_counted_and_said():
    failure = {"status": "failed", "problem": "out of memory"}
    cells = [cell("a", agreement=0.5), cell("a", seed=2, **failure), cell("b", **failure), cell("b", seed=2, **failure)]
    summary = summarise_comparison(cells, TEACHER, evaluation())
    first, second = rows_of(summary)
    assert (first.finished, first.wanted, first.seeds) == (1, 2, [1])
    assert (second.finished, second.rank, second.tokens) == (0, None, None)
    assert summary.notes == ["3 runs failed (first a,  on 3x384, seed 2): out of memory", "a note"]


def test_published_rows_and_costs_stand_beside_their_student():
    published = [{"paper": "p", "table": "1", "shape": f"{layers}x384", "model": "x"} for layers in (3, 6)]
    parameters, speedups = {"3x384": 17, "teacher": 109}, {"3x384": 5.3, "teacher": 1.0}
    costs = Costs.read({
        "models": [{"model": name, "parameters": count} for name, count in parameters.items()],
        "timings": [{"model": name, "batch": 32, "length": 128, "speedup": ratio} for name, ratio in speedups.items()],
    })  # fmt: skip
    summary = summarise_comparison([cell("a")], TEACHER, evaluation(published=published), costs)
    [block] = summary.blocks
    assert [row.to_dict() for row in block.published] == published[:1]
    speedup = {"batch": 32, "length": 128, "speedup": 5.3}
    assert block.cost.to_dict() == {"parameters": 17, "speedups": [speedup]}
    assert summary.teacher.cost.parameters == 109


def test_retention_needs_the_teacher():
    cells = [cell("a"), cell("b")]
    models = [model(one.model, {"rte": 50.0}, {"rte": 100.0}) for one in cells]
    with_teacher = summarise_comparison(cells, TEACHER, evaluation(model("teacher", {"rte": 50.0}), *models))
    without = summarise_comparison(cells, TEACHER, evaluation(*models))
    assert [row.retention for row in rows_of(with_teacher)] == [{"rte": 100.0}] * 2
    assert [row.retention for row in rows_of(without)] == [{}] * 2


def test_a_measure_that_could_not_be_had_is_said_once():
    reasons = {"agreement": "too little text", "retrieval": "too little text", "layers": "no text"}
    notes = summarise_comparison([cell("a", seed=seed, unavailable=reasons) for seed in (1, 2)], TEACHER).notes
    assert notes == ["Held-out agreement, retrieval: too little text", "Held-out layers: no text"]
