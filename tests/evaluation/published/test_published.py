"""The published numbers are as printed: their own averages hold, and each paper is spot-checked."""

from pathlib import Path
from statistics import fmean

import pytest
import yaml

from limbeck.evaluation.protocols import PROTOCOLS, task_columns
from limbeck.evaluation.published import PAPERS, matching_costs, matching_rows, read_costs, read_rows
from limbeck.evaluation.tasks import TASKS

HERE = Path(__file__).parent
ROWS = [row for paper in PAPERS for row in read_rows(paper)]


def test_printed_averages_follow_from_their_rows():
    whole = [
        row for row in ROWS if row.average is not None and all(c in row.scores for c in row.averaged) and row.averaged
    ]
    wrong = {
        (row.paper, row.table, row.model, row.shape, row.average)
        for row in whole
        if abs(fmean(row.scores[column] for column in row.averaged) - row.average) > 0.0501
    }
    assert len(whole) > 150
    assert wrong == set(map(tuple, yaml.safe_load((HERE / "misprints.yaml").read_text(encoding="utf-8"))))


def test_every_column_is_a_column_of_a_task_under_a_metric_it_has():
    known = {column.key: task for _, task in TASKS.items() for column in task_columns(task)}
    for key, metric in {column for row in ROWS for column in row.scores}:
        assert metric in known[key].metrics, (key, metric)


@pytest.mark.parametrize("case", yaml.safe_load((HERE / "spot_checks.yaml").read_text(encoding="utf-8")))
def test_spot_checks(case):
    paper, *wanted, column, metric, value = case
    found = [row for row in read_rows(paper) if [row.table, row.model, row.shape, row.teacher] == wanted]
    assert value in [row.scores.get((column, metric)) for row in found]


def test_costs_of_the_papers():
    minilm = {cost.shape: cost.values for cost in read_costs("minilm")}
    assert minilm["6x384"] == {"embedding parameters (M)": 11.7, "Transformer parameters (M)": 10.6, "seconds": 17.7,
                               "speedup": 5.3}  # fmt: skip
    heads = [cost.values["batch 64 (ms)"] for cost in read_costs("mlkd_bert") if cost.task == "qqp"]
    assert heads == [19.28, 17.49, 16.60]


def test_rows_match_by_shape_vocabulary_and_metric():
    english = matching_rows([("6x384", 30_522)], [("mnli-m", "accuracy")], ["minilmv2"])
    assert {row.shape for row in english} == {"6x384"}
    assert not any(row.multilingual for row in english)
    assert {row.table for row in english} == {"1", "7", "8", "10"}
    assert not matching_rows([("6x384", 30_522)], [("mrpc", "f1")], ["minilmv2"]), "table 1 has accuracy"
    multilingual = matching_rows([("6x384", 250_002)], [("xnli", "accuracy")])
    assert multilingual and all(row.multilingual for row in multilingual)
    assert {cost.paper for cost in matching_costs([("4x312", 30_522)])} == {"mlkd_bert"}


def test_the_papers_of_a_preset_exist():
    assert {paper for _, protocol in PROTOCOLS.items() for paper in protocol.papers} == set(PAPERS)
