"""The tables say what was measured, what is kept of the teacher, and what papers printed beside it."""

import io
from csv import DictReader
from dataclasses import replace
from io import StringIO
from itertools import product
from types import SimpleNamespace

import pytest
from rich.console import Console

from limbeck.core.studies import Costs, EvaluatedModel, Evaluation, EvaluationCell
from limbeck.evaluation.evaluators.evaluator import FINE_TUNED, EvaluatedTask
from limbeck.evaluation.plan.cell import Cell, PlannedCell
from limbeck.evaluation.plan.planned_model import PlannedModel
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.plan.points import training_points
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.results.choices import choose_all
from limbeck.evaluation.results.summary import summarise
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.models.families import Shape
from limbeck.report import fine_tuned_card
from limbeck.report.chance import guesser_sentence
from limbeck.report.collect import collect
from limbeck.report.costs import cost_tables
from limbeck.report.evaluation import evaluation_csv, evaluation_markdown, evaluation_table
from limbeck.report.evaluation_sections import cells, evaluation_highlights, overview
from limbeck.report.evaluation_tables import chosen_lines, metrics_table, reading_notes, scores_table
from limbeck.report.methods_notes import range_words
from limbeck.report.names import at_start, metric_name
from tests.golden.committed import FOLDERS

# The figures of MiniLMv2's table 1 for the 6x384 student of BERT-base, which its authors average to 78.2.
TASKS_OF_TABLE = ("squad2", "mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola")
STUDENT = dict(zip(TASKS_OF_TABLE, (72.9, 82.8, 90.3, 90.6, 68.9, 91.3, 86.6, 41.8), strict=True))
TEACHER = dict(zip(TASKS_OF_TABLE, (76.8, 84.5, 91.7, 91.3, 68.6, 93.2, 87.3, 58.9), strict=True))


def shape(layers, hidden):
    return Shape("bert", layers, hidden, 12, 12, hidden // 12, 4 * hidden, 30_522, hidden, 512)


def make_summary(tasks=tuple(STUDENT), fail=(), one_answer=()):
    """Results whose runs are 1 point above and below the figures, at the second of two grid points.

    Some runs fail, and some give all rows one answer.
    """
    protocol = PROTOCOLS["minilmv2"]
    models = [PlannedModel("teacher", "t", "v", shape(12, 768)), PlannedModel("student", "s", "v", shape(6, 384))]
    rows, planned = {}, []
    for name in tasks:
        task = TASKS[name]
        settings = protocol.settings(task, [(None, {"learning_rates": [1e-5, 2e-5], "epochs": 3})])
        cells = []
        points = enumerate(training_points(task, settings, bf16=False))
        of_models = zip(models, (TEACHER, STUDENT), strict=True)
        for (model, figures), (place, point), seed in product(of_models, points, (1, 2)):
            identity = f"{model.name}-{name}-{place}-{seed}"
            cells.append(PlannedCell(Cell(model.name, name, point, seed), identity, identity))
            value = (figures[name] + (1, -1)[seed - 1] - (0 if place else 5)) / 100
            failed = {"status": "failed", "error": "out of memory"} if identity in fail else {}
            if identity in one_answer:
                failed["only_answer"] = dict.fromkeys(task.scored, "yes")
            rows[identity] = EvaluationCell.read({
                "id": identity, "status": "finished", "model": model.name, "seed": seed, "select": task.select,
                "settings": {"learning_rate": point.learning_rate, "epochs": 3, "batch_size": 32, "length": 128},
                "scores": {split: dict.fromkeys(task.metrics, value) for split in task.scored}, **failed,
            })  # fmt: skip
        evaluated = EvaluatedTask(name, FINE_TUNED, task, settings, "d")
        planned.append(PlannedTask(evaluated, tuple(cells), (f"{name}: a note",)))
    choices = choose_all(rows, planned, models)
    return summarise(rows, planned, models, protocol, choices).to_dict()


def shown(summary, width):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(evaluation_table(summary))
    return console.export_text()


def test_the_report_of_models_as_they_are_names_no_protocol_of_fine_tuning():
    summary = make_summary() | {"as_is": True}
    for text in (shown(summary, 200), evaluation_markdown(summary)):
        assert "Models as they are" in text and "preset" not in text

    [evaluation] = collect([FOLDERS["evaluation"]])
    facts, *_ = overview(evaluation)
    assert "Protocol" in dict(facts.pairs)
    facts, *_ = overview(replace(evaluation, summary=evaluation.summary.model_copy(update={"as_is": True})))
    assert "Protocol" not in dict(facts.pairs) and evaluation.request.preset not in str(facts)
    assert dict(facts.pairs)["Training"] == "none: the models were scored as they are"


def test_a_report_before_the_end_names_a_protocol_only_if_a_cell_was_fine_tuned():
    [evaluation] = collect([FOLDERS["evaluation"]])
    running = replace(evaluation, summary=Evaluation(), is_running=True)
    facts, *_ = overview(running)
    assert running.request.preset in dict(facts.pairs)["Protocol"]

    request = running.request.model_copy(update={"overrides": ["max_scored_rows=300"]})
    scored = replace(running, request=request, cells=(EvaluationCell(task="sick_cosine", settings={"length": 384}),))
    facts, *_ = overview(scored)
    assert dict(facts.pairs)["Settings"] == "max_scored_rows=300"
    assert "Protocol" not in dict(facts.pairs) and "Training" not in dict(facts.pairs)

    # Before the first cell nothing is known of the tasks.
    facts, *_ = overview(replace(running, cells=()))
    assert "Protocol" in dict(facts.pairs)


def test_averages_are_the_papers_and_retention_is_of_the_first_model():
    first, second = make_summary()["models"]
    average = second["averages"]["average"]
    assert (average["mean"], average["deviation"]) == (pytest.approx(78.15), pytest.approx(2**0.5))
    assert average["complete"] and "mnli-mm" not in average["of"], "table 1 has MNLI-m only"
    assert second["averages"]["without_cola"]["mean"] == pytest.approx((8 * 78.15 - 41.8) / 7)
    assert first["retention"] == {}
    kept = {"cola": 100 * 41.8 / 58.9, "average": 100 * 78.15 / 81.5375}
    assert {name: second["retention"][name] for name in kept} == pytest.approx(kept)


def test_shares_of_a_teachers_scores_come_with_a_word_on_untrained_students():
    alone = Evaluation(models=[EvaluatedModel(name="teacher")])
    assert reading_notes(alone) == []
    beside_a_teacher = Evaluation(
        models=[EvaluatedModel(name="teacher"), EvaluatedModel(name="student", retention={"a": 90})]
    )
    [note] = reading_notes(beside_a_teacher)
    assert "`limbeck distill --steps 0`, which copies layers of the teacher and fits them to your text or rows." in note
    [note_on_heads] = reading_notes(beside_a_teacher.model_copy(update={"as_is": True}))
    assert note_on_heads.startswith(note)
    assert "A run that scores development rows has the score of an untrained start in its own table." in note_on_heads


def test_an_average_over_fewer_tasks_says_so():
    summary = make_summary(tasks=("rte", "cola", "sst2"))
    average = summary["models"][1]["averages"]["average"]
    assert average["mean"] == pytest.approx((68.9 + 41.8 + 91.3) / 3) and not average["complete"]
    assert "Average\nof 3 only" in scores_table(Evaluation.read(summary)).headings
    row = next(row for row in summary["published"] if (row["table"], row["teacher"]) == ("1", "BERT-base"))
    assert row["average"] == pytest.approx((68.9 + 41.8 + 91.3) / 3), "printed is one over more tasks"
    assert row["without_cola"] == pytest.approx((68.9 + 91.3) / 2)
    assert row["computed"] == ["average", "without_cola"]
    text = shown(summary, 120)
    assert "67.3 †" in text and "† is not printed in the paper" in text
    assert make_summary(tasks=("rte",))["models"][0]["averages"]["average"] is None


def test_an_average_that_is_printed_is_kept_and_others_are_computed_over_all_columns():
    summary = make_summary()
    averages = summary["models"][0]["averages"]
    for row in summary["published"]:
        for name in row["computed"]:
            figures = [row["columns"][key] for key in averages[name]["of"]]
            assert row[name] == pytest.approx(sum(figures) / len(figures))
    assert 78.2 in [row["average"] for row in summary["published"] if "average" not in row["computed"]]
    assert any(row["average"] is None for row in summary["published"])


def test_published_rows_in_csv_can_be_told_apart():
    published = {"paper": "minilm", "table": "2", "model": "MiniLM", "shape": "6x384", "columns": {"rte": 70.0}}
    rows = [
        published | {"split": "development", "teacher": "BERT-base", "average": 80.0, "computed": []},
        published | {"split": "test", "distilled": "task", "average": 81.0, "computed": ["average"]},
    ]
    lines = list(DictReader(StringIO(evaluation_csv(make_summary(tasks=("rte",)) | {"published": rows}))))
    printed = [(line["source"], line["model"], line["column"], line["mean"]) for line in lines[-3:]]
    assert printed == [
        ("minilm table 2, dev", "MiniLM from BERT-base, 6x384", "rte", "70.0"),
        ("minilm table 2, dev", "MiniLM from BERT-base, 6x384", "average", "80.0"),
        ("minilm table 2, test", "MiniLM, distilled on the task, 6x384", "rte", "70.0"),
    ]


def test_a_score_below_zero_keeps_nothing(monkeypatch):
    monkeypatch.setitem(STUDENT, "cola", -5.0)
    summary = make_summary(tasks=("cola", "rte"))
    assert "cola" not in summary["models"][1]["retention"]
    rows = scores_table(Evaluation.read(summary)).rows
    assert [str(row[1]) for row in rows if str(row[0]).startswith("↳ % of")] == ["–"]


@pytest.mark.parametrize(
    ("notes", "in_short", "told"),
    [
        (["a test: 7 rows", "b test: 7 rows"], ["a test: 7 rows; likewise b test"], False),
        (["a test: 7 rows", "b test: 9 rows"], ["a test: 7 rows; also incomplete: b test"], True),
    ],
)
def test_the_file_with_all_notes_is_named_where_some_are_not_shown(notes, in_short, told):
    summary = Evaluation.read(make_summary() | {"notes": notes, "notes_in_short": in_short})
    assert ("`evaluation_table.md` has all 2." in shown(summary, 120)) == told


def test_runs_that_give_one_answer_are_counted():
    figures = [model["columns"]["rte"] for model in make_summary(("rte",), one_answer=["student-rte-1-2"])["models"]]
    assert [(figure.get("only_answer"), figure.get("one_answer_runs")) for figure in figures] == [
        (None, None), ("yes", [1, 2])
    ]  # fmt: skip
    both = make_summary(("rte",), one_answer=["student-rte-1-1", "student-rte-1-2", "student-rte-0-1"])
    assert both["models"][1]["columns"]["rte"]["one_answer_runs"] == [2, 2], "of the chosen grid point"


def test_the_grid_point_and_its_runs_are_told():
    chosen = make_summary()["models"][1]["chosen"]["rte"]
    assert (chosen["settings"]["learning_rate"], chosen["runs"], chosen["points"]) == (2e-5, 2, 2)
    fail = ("student-rte-0-1", "student-rte-1-1", "student-rte-1-2")
    summary = make_summary(tasks=("rte",), fail=fail)
    partly = summary["models"][1]["chosen"]["rte"]
    assert (partly["settings"]["learning_rate"], partly["runs"], partly["wanted"]) == (1e-5, 1, 2)
    note = summary["notes"][-1]
    assert note.startswith("3 measurements failed (first student, rte") and "out of memory" in note
    assert "1 of 2 runs" in evaluation_markdown(summary)
    partly["settings"]["epochs"], partly["points"] = 1.0, 1
    of_teacher, of_student = chosen_lines(Evaluation.read(summary))
    assert "3 epochs, batch" in of_teacher and "1 epoch, batch" in of_student and of_student.endswith("of 1 grid point")


@pytest.mark.parametrize(("task", "told"), [("squad_retrieval", 384), ("mteb:retrieval", 512)])
def test_the_length_of_a_retrieval_is_that_of_the_model_that_reads(task, told):
    settings = {"length": 512, "reader_lengths": [384, 256]}
    chosen = {"settings": settings, "runs": 1, "wanted": 1, "points": 1, "seeds": [0]}
    summary = Evaluation.read({"models": [{"name": "m", "chosen": {task: chosen}}]})
    assert list(chosen_lines(summary)) == [f"m, {task}: nothing trained, {told} tokens"]


def test_the_agreement_of_cosines_has_another_name_than_the_agreement_of_a_run():
    assert metric_name("agreement") == "Spearman with the teacher's cosines"


def test_published_rows_with_the_most_figures_stand_first():
    summary = make_summary()
    only_cola = {**summary["published"][0], "model": "Elsewhere", "columns": {"cola": 41.8}}
    only_cola |= {"average": None, "without_cola": None, "computed": []}
    text = shown({**summary, "published": [only_cola, *summary["published"][:2]]}, 200)
    assert text.index("BERT-base") < text.index("Elsewhere")


SMALL, LARGE = "bert 2x192, 3 heads, FFN 768", "bert 6x384, 12 heads, FFN 1536"


def published_tables(shapes, *published):
    """The tables of papers beside models of these shapes, of rows that are a table, a shape and a task each."""
    sizes = dict.fromkeys(("embedding_parameters", "transformer_parameters", "parameters", "megabytes"), 1)
    models = [{"model": "m", "shape": shape, **sizes, "megaflops_per_token": {"128": 1.0}} for shape in shapes]
    given = ({"table": table, "shape": shape, "task": task} for table, shape, task in published)
    rows = [{"paper": "minilm", "device": "a GPU", "values": {"ms": 3}, **row} for row in given]
    costs = Costs.read({"models": models, "timings": [], "machine": {"device": "cpu"}, "published": rows})
    found = list(cost_tables(costs))[2:]
    return {table.caption: (table.headings, [tuple(map(str, row)) for row in table.rows]) for table in found}


def test_a_papers_table_stands_beside_where_it_has_a_compared_shape():
    name, large = "MiniLM, table 4 (a GPU)", ("4", "6x384", None)
    assert published_tables([LARGE, SMALL], large) == {}, "the first model's shape alone"
    assert published_tables([SMALL, LARGE], large).keys() == published_tables([LARGE], large).keys() == {name}
    found = published_tables([LARGE, SMALL], large, ("4", "2x192", None), ("5", "6x384", None))
    assert found == {name: (("", "ms"), [("6x384", "3"), ("2x192", "3")])}
    found = published_tables([SMALL], ("4", "2x192", "mnli"), ("4", "2x192", None))
    assert found[name] == (("", "Texts from", "ms"), [("2x192", "mnli", "3"), ("2x192", "–", "3")])


@pytest.mark.parametrize(
    ("kind", "threshold", "told", "printed"),
    [("multi_label", "joy_threshold", "probabilities", "0.437"),
     ("question_answering", "best_f1_threshold", "score differences", "0.4")],
)  # fmt: skip
def test_tables_and_cards_say_what_thresholds_are(kind, threshold, told, printed, tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuned_card, "teacher_facts", lambda name: {"hub_id": None, "card": None})
    metrics = {name: {"mean": value, "runs": [value]} for name, value in (("f1_answer", 80.0), (threshold, 0.437))}
    chosen = {"settings": {"length": 32}, "runs": 1, "wanted": 1, "points": 1, "seeds": [1]}
    column = {"mean": 80.0, "runs": [80.0], "metrics": metrics}
    summary = Evaluation.read({
        "preset": "quick",
        "columns": [{"key": "own", "title": "", "task": "own", "metric": "f1_answer", "kind": kind, "splits": ["x"]}],
        "models": [{"name": "here", "columns": {"own": column}, "chosen": {"own": chosen}}],
    })  # fmt: skip
    settings = {"warmup": 0.1, "schedule": "linear", "weight_decay": 0.0, "stride": 0, "epochs": 1, "batch_size": 8,
                "learning_rate": 1e-5, "length": 32, "bf16": False}  # fmt: skip
    fields = {"model": str(tmp_path), "seed": 1, "select": "x", "settings": settings, "rows": {}}
    cell = EvaluationCell.read(fields | {"created": "2026-01-01T00:00:00+00:00", "device": "cpu"})
    task = replace(TASKS["mrpc"], name="own", kind=kind)
    card = fine_tuned_card.write_fine_tuned_card(cell, task, summary, tmp_path).read_text(encoding="utf-8")
    # An empty line would end the list.
    assert "- Made: 2026-01-01T00:00:00+00:00 on cpu\n- Versions:" in card
    table = metrics_table(summary)
    assert f"thresholds are {told}" in card and f"thresholds are {told}" in table.caption
    assert f"| {printed} |" in card and str(table.rows[-1][-1]) == printed


def test_as_many_training_rows_as_may_be_scored_are_no_cut_split(tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuned_card, "teacher_facts", lambda name: {"hub_id": None, "card": None})
    column = {"key": "rte", "title": "RTE", "task": "rte", "metric": "accuracy", "kind": "classification"}
    figure = {"mean": 80.0, "runs": [80.0]}
    chosen = {"settings": {}, "runs": 1, "wanted": 1, "points": 1, "seeds": [1]}
    summary = Evaluation.read({
        "preset": "quick",
        "columns": [column | {"splits": ["validation"]}],
        "models": [{"name": "here", "columns": {"rte": figure}, "chosen": {"rte": chosen}}],
    })  # fmt: skip
    for rows, has_results in (({"train": 1000, "validation": 277}, True), ({"train": 277, "validation": 1000}, False)):
        cell = EvaluationCell.read({"model": "m", "seed": 1, "settings": {"max_scored_rows": 1000}, "rows": rows})
        data = fine_tuned_card.FineTunedCard(cell, TASKS["rte"], summary).data
        assert (data.eval_results is not None) == has_results


@pytest.mark.parametrize("is_scored", [True, False])
def test_a_card_speaks_of_scores_only_where_it_has_them(tmp_path, monkeypatch, is_scored):
    monkeypatch.setattr(fine_tuned_card, "teacher_facts", lambda name: {"hub_id": None, "card": None})
    column = {"key": "rte", "title": "RTE", "task": "rte", "metric": "accuracy", "kind": "classification"}
    figure = {"mean": 80.0, "runs": [80.0]}
    columns = {"rte": figure | {"metrics": {"accuracy": figure}}} if is_scored else {}
    chosen = {"settings": {}, "runs": 1, "wanted": 1, "points": 1, "seeds": [1]}
    summary = Evaluation.read({
        "preset": "quick",
        "columns": [column | {"splits": ["validation"]}],
        "models": [{"name": "here", "columns": columns, "chosen": {"rte": chosen}}],
    })  # fmt: skip
    settings = {"warmup": 0.1, "schedule": "linear", "weight_decay": 0.0, "stride": 0, "epochs": 1, "batch_size": 8,
                "learning_rate": 1e-5, "length": 32, "bf16": False}  # fmt: skip
    cell = EvaluationCell.read({"model": str(tmp_path), "seed": 1, "select": "x", "settings": settings, "rows": {}})
    card = fine_tuned_card.write_fine_tuned_card(cell, TASKS["rte"], summary, tmp_path).read_text(encoding="utf-8")
    assert ("The model has no scores" in card) == (not is_scored)
    assert ("it may do worse than the scores show." in card) == is_scored
    assert ("it may do worse." in card) == (not is_scored)


def test_entities_are_named_as_the_other_metrics():
    names = [metric_name(name) for name in ("f1_entity", "f1_answer", "accuracy")]
    assert names == ["entity F1", "answer F1", "accuracy"]
    assert [at_start(name) for name in ("", " ", "entity F1", "nDCG@10")] == ["", " ", "Entity F1", "nDCG@10"]


def test_the_card_of_a_fine_tuned_model_names_the_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuned_card, "teacher_facts", lambda name: {"hub_id": None, "card": None})
    figure = {"mean": 80.0, "runs": [80.0], "metrics": {"accuracy": {"mean": 80.0, "runs": [80.0]}}}
    column = {"task": "own", "metric": "accuracy", "kind": "classification"}
    summary = Evaluation.read({
        "preset": "quick",
        "columns": [column | {"key": "own", "title": "Own (validation)", "splits": ["validation"]},
                    column | {"key": "own:test", "title": "Own (test)", "splits": ["test"]}],
        "models": [{"name": "here", "columns": {"own": figure, "own:test": figure},
                    "chosen": {"own": {"settings": {}, "runs": 1, "wanted": 1, "points": 1, "seeds": [1]}}}],
    })  # fmt: skip
    settings = {"warmup": 0.1, "schedule": "linear", "weight_decay": 0.0, "stride": 0, "epochs": 1, "batch_size": 8,
                "learning_rate": 1e-5, "length": 32, "bf16": False}  # fmt: skip
    cell = EvaluationCell.read({"model": str(tmp_path), "seed": 1, "select": "x", "settings": settings, "rows": {}})
    task = replace(TASKS["mrpc"], name="own", title="Own")
    card = fine_tuned_card.write_fine_tuned_card(cell, task, summary, tmp_path).read_text(encoding="utf-8")
    assert "In percent, on the rows of validation and test." in card and "development rows" not in card
    results = fine_tuned_card.FineTunedCard(cell, task, summary).data.eval_results
    assert [result.dataset_split for result in results] == ["validation", "test"]


def test_a_score_is_rounded_alike_in_tables_and_highlights():
    # 61 of 80 rows are 76.25 %, which a format rounds to the even 76.2.
    figure = {"mean": 76.25, "runs": [76.25], "chance": 51.25, "rows": 80}
    column = {"key": "own", "title": "Own", "task": "own", "metric": "accuracy", "kind": "classification"}
    model = {"name": "here", "figures": {"own": figure}, "columns": {"own": figure}}
    summary = Evaluation.read({"columns": [column], "models": [model]})
    cell = EvaluationCell.read({"model": "here", "task": "own", "scores": {"validation": {"accuracy": 0.7625}}})

    table = str(scores_table(summary).rows)
    assert "76.3" in table and "51.3" in table
    [highlight] = evaluation_highlights(SimpleNamespace(summary=summary))
    assert highlight.value == "76.3"
    assert guesser_sentence(summary.columns[0], summary.models[0].columns["own"]).endswith("has 51.3.")
    [cells_table] = cells(SimpleNamespace(summary=Evaluation.read({}), cells=[cell]))
    assert "accuracy 76.3" in str(cells_table.rows)
    assert range_words([76.25, 80.0], 1) == "76.3 to 80.0"
