"""Protocols average as each table does, say the threshold of SQuAD 2.0, and set like beside like."""

import json
import re
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from limbeck.core.kinds import KINDS
from limbeck.core.records import Run
from limbeck.core.studies import EvaluationCell
from limbeck.errors import RecipeError
from limbeck.evaluation.evaluators.evaluator import FINE_TUNED, EvaluatedTask
from limbeck.evaluation.plan.cell import Cell, PlannedCell
from limbeck.evaluation.plan.columns import task_columns
from limbeck.evaluation.plan.planned_model import PlannedModel, plan_models
from limbeck.evaluation.plan.planner import PlannedTask
from limbeck.evaluation.plan.points import training_points
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.protocols.overrides import Override
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.protocols.published import PAPERS, matching_rows, read_rows
from limbeck.evaluation.results.choices import choose_all
from limbeck.evaluation.results.summary import summarise
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.answer_scores import THRESHOLD, best_threshold
from limbeck.models.families import Shape
from tests.support.models import save_folder, tiny_model


def metric_of(protocol, task):
    return protocol.settings(task).metric or task.metrics[0]


AVERAGED = [("elm", "2"), ("elm", "3"), ("elm", "4"), ("elm", "7"), ("mlkd_bert", "2"), ("minilmv2", "2")]


@pytest.mark.parametrize(("preset", "table"), AVERAGED, ids="-".join)
def test_averages_are_those_of_single_tables(preset, table):
    protocol = PROTOCOLS[preset].averaged_as(f"table{table}")
    tasks = {column.key: task for _, task in TASKS.items() for column in task_columns(task)}
    averaged = [(key, metric_of(protocol, tasks[key])) for key in protocol.average]
    rows = [row for row in read_rows(preset) if row.table == table and row.average is not None]
    near = [abs(fmean(row.scores[column] for column in averaged) - row.average) < 0.0501 for row in rows]
    assert len(rows) >= 3 and all(near), [row.model for row in rows]


def test_a_ranking_has_the_length_of_a_distillation_unless_one_is_named():
    ranking = replace(TASKS["mrpc"], name="own", kind="ranking")
    for name, protocol in PROTOCOLS.items():
        assert protocol.settings(ranking).length == KINDS["ranking"].length == 256, name
        assert protocol.settings(ranking, [Override("own", {"length": 64})]).length == 64
        # No paper has a ranking; a preset that names its length keeps it.
        named = replace(protocol, changes={**protocol.changes, "ranking": {"length": 100}})
        assert (named.settings(ranking).length, named.length_of_kind(ranking)) == (100, None)
    assert PROTOCOLS["minilmv2"].settings(TASKS["mrpc"]).length == 128
    assert PROTOCOLS["quick"].settings(TASKS["squad"]).length == 256


def evaluated(protocol, scores, *, on_task=False):
    """The tables of one 4x768 student whose tasks have these scores, by metric."""
    shape = Shape("bert", 4, 768, 12, 12, 64, 3072, 30_522, 768, 512)
    model, cells, planned = PlannedModel("student", "s", "v", shape, on_task), {}, []
    for name, found in scores.items():
        task = TASKS[name]
        settings = protocol.settings(task, [(None, {"learning_rates": 1e-5, "epochs": 3})])
        (point,) = training_points(task, settings, bf16=False)
        cells[name] = EvaluationCell(
            id=name, status="finished", model="student", seed=1, select=task.select,
            settings={"learning_rate": 1e-5, "epochs": 3}, scores=dict.fromkeys(task.scored, found),
        )  # fmt: skip
        cell = PlannedCell(Cell("student", name, point, 1), name, name)
        planned.append(PlannedTask(EvaluatedTask(name, FINE_TUNED, task, settings, "d"), (cell,)))
    return summarise(cells, planned, [model], protocol, choose_all(cells, planned, [model]))


def test_an_average_has_the_metrics_of_its_table_and_the_printed_one_beside_it():
    scores = {name: dict.fromkeys(TASKS[name].metrics, 0.5) for name in
              ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb")}  # fmt: skip
    scores["mrpc"] = {"accuracy": 0.9, "f1": 0.1}
    means, printed = {}, {}
    for table in ("table3", "table4"):
        found = evaluated(PROTOCOLS["elm"].averaged_as(table), scores)
        means[table] = found.models[0].averages.average.mean
        printed[table] = {row.table: row.average for row in found.published
                          if row.model == "ELM" and row.average and "average" not in row.computed}  # fmt: skip
        assert found.average == table
    assert means == {"table3": pytest.approx((7 * 50 + 90) / 8), "table4": pytest.approx((8 * 50 + 10) / 9)}
    assert printed == {"table3": {"3": 79.6}, "table4": {"4": 74.8}}


@pytest.mark.parametrize(
    ("preset", "message"), [("elm", "one of table2, table3, table4, table7"), ("quick", "leave --average")]
)
def test_an_average_that_is_not_there_is_refused_before_any_model_is_read(preset, message, tmp_path):
    request = EvaluationRequest(("nowhere",), "rte", tmp_path, preset=preset, average="table9")
    with pytest.raises(RecipeError, match=message):
        request.task_names()


def test_thresholds_stand_beside_the_scores_that_they_give_and_are_no_percentages():
    figures = {"f1_answer": 0.6, "exact_match": 0.5, "best_f1": 0.7, "best_f1_threshold": -3.5,
               "best_exact": 0.6, "best_exact_threshold": 0.25}  # fmt: skip
    found = evaluated(PROTOCOLS["elm"], {"squad2": figures, "rte": {"accuracy": 0.5}}).models[0].columns["squad2"]
    assert found.mean == pytest.approx(60)
    shown = {name: found.metrics[name].mean for name in figures}
    assert shown == pytest.approx({"f1_answer": 60, "exact_match": 50, "best_f1": 70, "best_f1_threshold": -3.5,
                                   "best_exact": 60, "best_exact_threshold": 0.25})  # fmt: skip


def test_every_preset_of_a_paper_says_the_threshold_of_squad_2():
    for name, protocol in PROTOCOLS.items():
        if protocol.papers and name != "minilm":  # It says "as in minilmv2".
            said = re.search(r"threshold of\s+SQuAD 2\.0\s+(?:\(|is )(\d+)", protocol.silent)
            assert said and float(said[1]) == THRESHOLD, name
    for name in TASKS:
        task = TASKS[name]
        assert PROTOCOLS["minilm"].settings(task) == PROTOCOLS["minilmv2"].settings(task)


def test_the_threshold_is_searched_as_the_script_of_squad_2_does():
    """Questions in the order of their odds, each added alone, and the first best of these sums."""
    draw = np.random.default_rng(5)
    for _ in range(200):
        count = int(draw.integers(1, 9))
        odds = draw.integers(-2, 3, count).astype(float)  # With ties.
        answerable, empty = draw.random(count) < 0.6, draw.random(count) < 0.2
        scores = draw.random(count).round(1) * (answerable & ~empty)
        reached = best = float(count - answerable.sum())
        where = 0.0
        for index in sorted(range(count), key=lambda one: odds[one]):
            if answerable[index]:
                reached += scores[index]
            elif not empty[index]:
                reached -= 1
            if reached > best:
                best, where = reached, odds[index]
        assert best_threshold(scores, odds, answerable, empty) == pytest.approx((best / count, where))


SHAPE, COLUMNS = [("4x312", 30_522)], [("sst2", "accuracy"), ("mnli-m", "accuracy")]


def test_task_distilled_rows_stand_only_beside_task_distilled_students():
    alone, both = (matching_rows(SHAPE, COLUMNS, on_task=on_task) for on_task in ((), SHAPE))
    assert alone and not any(row.distilled for row in alone)
    tables = {(row.paper, row.table) for row in both if row.distilled}
    assert tables == {("elm", "6"), *(("mlkd_bert", number) for number in "145678")}
    assert [row for row in both if not row.distilled] == alone


def test_which_rows_were_distilled_on_a_task():
    """ELM's table 6 (section 5.4) and MLKD-BERT's method and task-specific baselines (sections 4.2 and 4.3)."""
    rows = {(row.paper, row.model.split()[0]): row.distilled for paper in PAPERS for row in read_rows(paper)
            if row.teacher and (paper, row.table) not in {("elm", "3")}}  # fmt: skip
    on_task = {name for name, distilled in rows.items() if distilled == "task"}
    assert on_task == {("elm", "TinyBERT"), *(("mlkd_bert", name) for name in
                       ("BERT-PKD", "BERT-EMD", "TinyBERT", "MLKD-BERT"))}  # fmt: skip
    assert {row.distilled for paper in PAPERS for row in read_rows(paper)} == {None, "task"}
    assert not any(row.distilled for row in read_rows("elm") if row.table != "6")


@pytest.mark.parametrize("place", ["student", "stages/1-first/student", "elsewhere"])
def test_a_student_is_task_distilled_where_its_run_says_so(place, tmp_path):
    student = save_folder(tiny_model("bert", layers=1), tmp_path / "run" / place, "bert")
    found = []
    for task in ({"kind": "classification"}, None):
        record = {"recipe": {"corpus": {"sources": [], "task": task}, "stages": [{"method": {"name": "mlm"}}]}}
        (tmp_path / "run" / Run.FILE).write_text(json.dumps(record), encoding="utf-8")
        found.append(plan_models([str(student)])[0].on_task)
    assert found == [place != "elsewhere", False]


def test_rows_that_are_left_out_are_counted():
    scores = {"sst2": {"accuracy": 0.9}, "mnli": {"accuracy": 0.8}}
    alone, on_task = (evaluated(PROTOCOLS["mlkd_bert"], scores, on_task=one) for one in (False, True))
    assert [note for note in alone.notes if note.startswith("Published rows left out: 1, of students distilled")]
    assert {row.model for row in on_task.published} - {row.model for row in alone.published} == {"BERT-PKD"}
    assert not any("left out" in note for note in on_task.notes)
