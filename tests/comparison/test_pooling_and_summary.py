"""Rows of several seeds, what ranks them, and what stands beside them."""

from pathlib import Path

import pytest

from limbeck.comparison.pooling import pool_scores
from limbeck.comparison.summary import summarise_comparison
from limbeck.core import studies
from limbeck.core.studies import Column, Comparison, ComparisonCell, Costs, Evaluation, Figure
from limbeck.report.comparison import methods_markdown, methods_tables
from limbeck.report.comparison_sections import comparison_facts, comparison_highlights
from limbeck.report.methods_notes import one_seed_lines
from limbeck.report.subjects import ComparisonFolder

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


def scored(name, score, chance=68.4, one_answer_runs=None):
    """A model of an evaluation with one fine-tuning on RTE, which may have collapsed."""
    figure = studies.ColumnFigure.of_runs([score], metrics={"accuracy": Figure.of_runs([score])}, chance=chance)
    if one_answer_runs is not None:
        figure.only_answer = "equivalent"
        figure.one_answer_runs = one_answer_runs
    return studies.EvaluatedModel(name=name, columns={"rte": figure})


def comparison_of(scores, seeds=(1, 2, 3), collapsed=(), students=("3x384",)):
    """A comparison of methods by their scores on RTE, of which every run of some collapsed."""
    cells = [cell(method, seed=seed, student=student) for student in students for method in scores for seed in seeds]
    models = [scored("teacher", 86.0)]
    for one in cells:
        counts = [1, 1] if one.method in collapsed else None
        if one.method == "start only":
            one.tokens = 0
        models.append(scored(one.model, scores[one.method][one.seed - 1], one_answer_runs=counts))
    summary = summarise_comparison(cells, TEACHER, evaluation(*models))
    sizes = {"plan": {"budget": {"tokens": 9}, "seeds": list(seeds)}, "corpus": {"tokens": 9}}
    return Comparison.read({**sizes, "summary": summary.to_dict()})


def test_a_method_that_gives_all_rows_one_answer_is_not_ranked():
    scores = {"a": [67.9, 67.4, 68.1], "b": [68.4, 68.4, 68.4], "c": [60.6, 60.1, 61.6]}
    record = comparison_of(scores, collapsed=["b"])
    assert [row.rank for row in rows_of(record.summary)] == [1, None, 2]
    assert rows_of(record.summary)[1].columns["rte"].one_answer_runs == [3, 3]
    text = methods_markdown(record)
    assert "| b | – |" in text and "68.4 ± 0.0 ‡ |" in text
    assert "‡ b on RTE: every row gets the same answer ('equivalent'), so the score is meaningless." in text
    assert "Rows whose RTE is meaningless (‡) are not ranked." in text

    of_two = methods_markdown(comparison_of({name: scores[name] for name in "ab"}, collapsed=["b"]))
    reason = "Fewer than two rows have several seeds and a score that has a meaning, so nothing is ranked."
    assert reason in of_two and reason not in text
    assert "are not ranked." not in methods_markdown(comparison_of({name: scores[name] for name in "ac"}))


def test_the_guesser_stands_below_the_methods_and_in_the_large_figure():
    scores = {"a": [67.9, 67.4, 68.1], "b": [67.6, 68.1, 67.6]}
    for students, line in ((["3x384"], "| *most frequent class* | – |"), (["3x384", "6x384"], None)):
        record = comparison_of(scores, students=students)
        tables = methods_tables(record.summary)
        assert len(tables) == (1 if len(students) == 1 else 3)
        for table in tables:
            assert [str(cell) for cell in table.rows[-1]].count("68.4") == (len(students) if table is tables[0] else 1)
            assert str(table.rows[-1][0]) == "most frequent class"
            assert len(table.rows) - 1 in table.faint and len(table.rows[-1]) == len(table.headings)
        assert line is None or line in methods_markdown(record)
        comparison = ComparisonFolder(folder=Path(), title="c", record=record, run_by_combination={})
        _, *of_students = comparison_highlights(comparison)
        assert len(of_students) == len(students)
        assert all(highlight.detail.endswith("the most frequent class has 68.4") for highlight in of_students)
    [block] = comparison_of(scores).summary.blocks
    assert {row.columns["rte"].chance for row in block.rows} == {68.4}


def test_the_range_of_the_trained_methods_leaves_meaningless_scores_out():
    scores = {"start only": [70.0], "a": [72.0], "b": [90.0], "c": [74.0]}
    lines = list(one_seed_lines(*_summary_and_main(comparison_of(scores, seeds=[1], collapsed=["b"]))))
    assert lines[-1].endswith("scored 70.0; the trained methods scored 72.0 to 74.0.")
    lines = list(one_seed_lines(*_summary_and_main(comparison_of(scores, seeds=[1], collapsed=["start only"]))))
    assert len(lines) == 1, "the baseline itself is meaningless"


def _summary_and_main(record):
    return record.summary, record.summary.main


def test_pooled_scores_count_the_fine_tunings_with_one_answer():
    good, bad = scored("good", 84.0), scored("bad", 68.4, one_answer_runs=[1, 2])
    bad.columns["rte"].runs = [68.4, 84.0]
    pooled = pool_scores([good, bad, good]).columns["rte"]
    assert (pooled.only_answer, pooled.one_answer_runs) == ("equivalent", [1, 4])
    assert pool_scores([good, good]).columns["rte"].one_answer_runs is None

    # Older records tell that a run of several has one answer, but not how many do.
    bad.columns["rte"].one_answer_runs = None
    pooled = pool_scores([good, bad]).columns["rte"]
    assert pooled.is_meaningless and pooled.one_answer_runs is None


def summary_of(by_row, seeds=(1, 2, 3)):
    """A comparison of rows (method and mapping) by their averages without CoLA, a figure for each seed."""
    cells = [cell(*row, seed=seed) for row in by_row for seed in seeds]
    scores = [score for found in by_row.values() for score in found]
    models = [model(one.model, {}, average=70.0, without_cola=score) for one, score in zip(cells, scores, strict=True)]
    return summarise_comparison(cells, TEACHER, evaluation(model("teacher", {}, average=80.0), *models))


def test_rows_are_ranked_by_differences_beyond_chance():
    summary = summary_of({
        ("hidden_states", "last"): [79.0, 79.4, 79.1],
        ("hidden_states", "uniform"): [81.0, 81.5, 81.1],
        ("hidden_states", "single"): [76.0, 84.0, 79.0],
        ("minilmv2", "last layer"): [81.2, 81.4, 81.2],
    })  # fmt: skip
    assert summary.main.to_dict() == {
        "kind": "averages", "key": "without_cola", "title": "average without CoLA", "of": ["cola", "rte"]
    }  # fmt: skip
    assert [(row.mapping, row.rank, row.best_mapping) for row in rows_of(summary)] == [
        ("last", 3, False), ("uniform", 1, True), ("single", 1, False), ("last layer", 1, False)
    ], "single is too uneven to be told from any"  # fmt: skip
    low, high = rows_of(summary)[0].over_seeds
    assert (low, high) == pytest.approx((78.6496, 79.6838), abs=1e-3)


def test_one_seed_ranks_nothing():
    summary = summary_of({("a", ""): [50.0], ("b", ""): [90.0]}, seeds=[1])
    assert [(row.main.mean, row.rank, row.over_seeds) for row in rows_of(summary)] == [
        (50.0, None, None),
        (90.0, None, None),
    ]


def test_with_one_seed_the_baseline_stands_beside_the_trained_and_nothing_is_ranked():
    scores = {"start only": 84.3, "a": 83.0, "b": 85.0}
    cells = [cell(method) for method in scores]
    cells[0].tokens = 0
    models = [model(one.model, {}, without_cola=score) for one, score in zip(cells, scores.values(), strict=True)]
    summary = summarise_comparison(cells, TEACHER, evaluation(model("teacher", {}, average=80.0), *models))
    sizes = {"plan": {"budget": {"tokens": 9}, "seeds": [1]}, "corpus": {"tokens": 9}}
    record = Comparison.read({**sizes, "summary": summary.to_dict()})
    comparison = ComparisonFolder(folder=Path(), title="c", record=record, run_by_combination={})
    line = "`start only`, which trains nothing, scored 84.3; the trained methods scored 83.0 to 85.0."
    facts = list(comparison_facts(comparison))
    assert facts[-1].endswith(line) and facts[-2].startswith("With one seed, differences")
    assert line in methods_markdown(record.to_dict())
    assert [row.rank for row in rows_of(summary)] == [None] * len(scores)


def test_differences_are_paired_by_seed():
    summary = summary_of({("a", ""): [50.0, 70.0, 90.0], ("b", ""): [51.0, 71.1, 90.9]})
    assert [row.rank for row in rows_of(summary)] == [2, 1], "seeds differ far more than methods"


def test_an_average_over_fewer_tasks_is_neither_pooled_nor_ranked():
    whole, part = model("a", {}, average=50.0), model("b", {}, of=("rte",), average=90.0)
    assert pool_scores([whole, part]).averages.average.runs == [50.0]
    cells = [cell(method, seed=seed) for method in "abc" for seed in (1, 2)]
    averages = [
        {"average": 50.0},
        {"average": 50.1},
        *[{"of": ("rte",), "average": 90.0}] * 2,
        *[{"average": 60.0}] * 2,
    ]
    models = [model(one.model, {}, **given) for one, given in zip(cells, averages, strict=True)]
    assert [row.rank for row in rows_of(summarise_comparison(cells, TEACHER, evaluation(*models)))] == [2, None, 1]


def test_without_tasks_held_out_text_ranks():
    cells = [cell("a", agreement=0.5), cell("a", seed=2, agreement=0.52)]
    cells += [cell("b", agreement=0.65), cell("b", seed=2, agreement=0.68), cell("c", agreement=0.9), cell("c", seed=2)]
    summary = summarise_comparison(cells, TEACHER)
    assert summary.main.title == "held-out agreement"
    assert [row.rank for row in rows_of(summary)] == [2, 1, None], "c has the figure of one seed"
    assert rows_of(summary)[0].main.deviation == pytest.approx(0.0002**0.5)
    assert summary.teacher.main.mean == 1.0
    relations = {"a": (0.5, 0.51), "b": (0.4, 0.4)}
    cells = [cell(name, seed=seed, relations=relations[name][seed - 1]) for name in "ab" for seed in (1, 2)]
    assert [row.rank for row in rows_of(summarise_comparison(cells, TEACHER))] == [2, 1], "less is better"
    relations["a"] = (0.5, 0.5)
    cells = [cell(name, seed=seed, relations=relations[name][seed - 1]) for name in "ab" for seed in (1, 2)]
    ranks = [(row.rank, row.over_seeds) for row in rows_of(summarise_comparison(cells, TEACHER))]
    assert ranks == [(1, None), (1, None)], "seeds that agree tell nothing of chance"


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
    speedup = {"batch": 32, "length": 128, "speedup": 5.3, "note": None}
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
