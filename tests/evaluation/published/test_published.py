"""The published numbers are as printed: their own averages hold, and each paper is spot-checked."""

from statistics import fmean

import pytest

from limbeck.evaluation.protocols import PROTOCOLS, task_columns
from limbeck.evaluation.published import PAPERS, matching_costs, matching_rows, read_costs, read_rows
from limbeck.evaluation.tasks import TASKS

# Averages that do not follow from the row in print either, by more than rounding.
MISPRINTS = {
    ("minilmv2", "5", "XLM-100", "16x1280", 70.7),
    ("mlkd_bert", "1", "MLKD-BERT", "4x312", 75.6),
    ("mlkd_bert", "1", "TinyBERT", "4x312", 74.8),
    ("mlkd_bert", "5", "MLKD-BERT with 3 heads by average mapping", "4x312", 80.0),
    ("mlkd_bert", "5", "MLKD-BERT with 3 heads by random mapping", "4x312", 80.0),
    ("mlkd_bert", "6", "MLKD-BERT", "4x312", 71.2),
    ("comparative_study", "6", "hidden states, uniform consecutive", "6x384", 71.1),
    ("comparative_study", "6", "output distribution, uniform consecutive", "6x384", 71.1),
    ("comparative_study", "7", "output distribution, uniform and last", "6x384", 61.0),
}
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
    assert wrong == MISPRINTS


def test_every_column_is_a_column_of_a_task_under_a_metric_it_has():
    known = {}
    for task in map(TASKS.__getitem__, TASKS):
        for column in task_columns(task):
            known[column.key] = task
    for key, metric in {column for row in ROWS for column in row.scores}:
        assert metric in known[key].metrics, (key, metric)


@pytest.mark.parametrize(
    ("paper", "table", "model", "shape", "teacher", "column", "value"),
    [
        ("minilm", "2", "MiniLM", "6x768", "BERT-base", ("cola", "matthews"), 49.2),
        ("minilm", "3", "MiniLM with assistant", "3x384", "BERT-base", ("squad2", "f1_answer"), 66.9),
        ("minilm", "9", "MiniLM", "12x384", "XLM-R-base", ("mlqa", "exact_match"), 44.7),
        ("minilmv2", "1", "MiniLMv2", "6x768", "RoBERTa-large", ("rte", "accuracy"), 78.7),
        ("minilmv2", "5", "MiniLMv2", "6x384", "XLM-R-large", ("xnli.ur", "accuracy"), 63.0),
        ("minilmv2", "5", "MiniLMv2", "6x384", "XLM-R-large", ("xnli", "accuracy"), 69.1),
        ("minilmv2", "6", "MiniLMv2", "6x384", "XLM-R-base", ("mlqa.hi", "f1_answer"), 53.3),
        ("elm", "2", "ELM (0,0,5,10)", "4x312", "BERT-base", ("squad", "exact_match"), 71.5),
        ("elm", "7", "ELM (1,4,6,11)", "4x312", "Chinese BERT-base", ("csl", "accuracy"), 73.9),
        ("mlkd_bert", "1", "MLKD-BERT", "6x768", "BERT-base", ("mnli-mm", "accuracy"), 83.5),
        ("mlkd_bert", "2", "MLKD-BERT", "4x312", "BERT-base", ("squad2", "f1_answer"), 68.9),
        ("comparative_study", "5", "MiniLMv2, layer 11", "6x384", "BERT-base", ("cola", "matthews"), 36.2),
        ("comparative_study", "7", "MiniLMv2, layer 11", "3x384", "XLM-R-base", ("xnli.sw", "accuracy"), 49.4),
    ],
)
def test_spot_checks(paper, table, model, shape, teacher, column, value):
    found = [r for r in read_rows(paper) if (r.table, r.model, r.shape, r.teacher) == (table, model, shape, teacher)]
    assert value in [row.scores.get(column) for row in found]


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
