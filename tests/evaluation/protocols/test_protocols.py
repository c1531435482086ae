"""Protocols have the papers' numbers, and so have the rows beside them."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from limbeck.errors import RecipeError
from limbeck.evaluation.measures import MeasuresSpec
from limbeck.evaluation.plan import columns
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.identity import identity, training_identity
from limbeck.evaluation.plan.points import training_points
from limbeck.evaluation.protocols import protocol as protocols
from limbeck.evaluation.protocols import published
from limbeck.evaluation.protocols.overrides import parse_overrides
from limbeck.evaluation.tasks.registry import TASKS

# (preset, task): rates, epochs, batch, length, runs, where settings of a kind, a group and a task meet. The golden
# snapshots hold every number of every preset.
PUBLISHED = {
    ("minilmv2", "mrpc"): ((1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5), (3, 5, 10), 32, 128, 4),
    ("minilmv2", "mlqa"): ((5e-5, 6e-5), (3,), 32, 512, 4),
    ("elm", "squad"): ((3e-5,), (4,), 16, 384, 3),
    ("elm", "cmrc2018"): ((3e-5,), (2,), 32, 512, 3),
    ("comparative_study_multilingual", "cola"): ((2e-5,), (10,), 32, 128, 3),
}


@pytest.mark.parametrize(("preset", "task"), PUBLISHED, ids="-".join)
def test_settings_are_the_papers(preset, task):
    settings = protocols.PROTOCOLS[preset].settings(TASKS[task])
    found = (settings.learning_rates, settings.epochs, settings.batch_size, settings.length, settings.seeds)
    assert found == PUBLISHED[preset, task]


def test_cross_lingual_models_are_chosen_as_the_papers_do():
    xnli, mlqa = (protocols.PROTOCOLS["minilmv2"].settings(TASKS[name]) for name in ("xnli", "mlqa"))
    assert (xnli.keep, xnli.pick) == ("best_epoch", "best")
    assert (mlqa.keep, mlqa.pick) == ("best_epoch", "mean")
    assert protocols.PROTOCOLS["comparative_study"].settings(TASKS["xnli"]).keep == "last"


@pytest.mark.parametrize("preset", protocols.PROTOCOLS)
def test_every_preset_has_settings_for_every_task(preset):
    protocol = protocols.PROTOCOLS[preset]
    for name, task in TASKS.items():
        settings = protocol.settings(task)
        points = training_points(task, settings, bf16=False)
        assert len({identity(Cell("m", name, point, 1), model="m", data="d") for point in points}) == len(points)
        assert settings.metric is None or settings.metric in task.metrics
    tasks = [task for _, task in TASKS.items()]
    assert set(protocol.average) <= {column.key for task in tasks for column in columns.task_columns(task)}
    assert set(protocol.changes) <= {key for task in tasks for key in (task.name, task.kind, task.group)}


def test_an_unknown_key_of_a_preset_is_refused(tmp_path, monkeypatch):
    (tmp_path / "protocols").mkdir()
    text = "{name: own, order: 1, source: s, silent: t, base: {learning_rates: 1e-5, epochs: 1}, avarage: [rte]}"
    (tmp_path / "protocols/own.yaml").write_text(text)
    monkeypatch.setattr(protocols, "DATA", tmp_path)
    with pytest.raises(RecipeError, match=r"'own' has the unknown key 'avarage'. Did you mean 'average'"):
        list(protocols._built_in())


def test_columns_are_named_as_tables_name_them():
    titles = {
        key: [c.title for c in columns.task_columns(TASKS[key]) if not c.detail]
        for key in ("rte", "mnli", "xnli", "mlqa")
    }
    assert titles == {"rte": ["RTE"], "mnli": ["MNLI-m", "MNLI-mm"], "xnli": ["XNLI"], "mlqa": ["MLQA"]}
    details = {column.key: column.splits for column in columns.task_columns(TASKS["mlqa"]) if column.detail}
    assert details["mlqa.de"] == ["test.de.de"]
    assert len(details) == 7
    assert len(columns.task_columns(TASKS["xnli"])[0].splits) == 15


def test_splits_that_end_alike_have_columns_of_their_own():
    task = replace(TASKS["mnli"], name="own", title="Own", scored=("validation_matched", "test_matched", "test"))
    found = [(column.key, column.title) for column in columns.task_columns(task)]
    assert found == [
        ("own-m", "Own-m"),
        ("own:test_matched", "Own (test_matched)"),
        ("own:test", "Own (test)"),
    ]


def test_the_splits_of_a_task_are_named_where_there_are_several():
    own = replace(TASKS["rte"], name="own", title="Own", scored=("validation", "test"))
    found = [(column.key, column.title) for column in columns.task_columns(own)]
    assert found == [("own", "Own (validation)"), ("own:test", "Own (test)")]


def test_overrides_win_and_those_of_a_task_most():
    protocol, cola, rte = protocols.PROTOCOLS["minilmv2"], TASKS["cola"], TASKS["rte"]
    overrides = [("cola", {"epochs": 2}), (None, {"epochs": 7, "seeds": 1}), (None, {"learning_rates": [1e-4, 2e-4]})]
    assert protocol.settings(cola, overrides).epochs == (2,)
    assert protocol.settings(rte, overrides).epochs == (7,)
    assert protocol.settings(rte, overrides).learning_rates == (1e-4, 2e-4)


def test_settings_of_a_comparison_are_overrides_of_all_tasks_or_of_one():
    settings = {"epochs": 2, "cola": {"epochs": 3, "seeds": 1}, "class_weights": {"unacceptable": 3, "acceptable": 1}}
    overrides = parse_overrides(MeasuresSpec(settings=settings).overrides, ["cola"])
    found = protocols.PROTOCOLS["minilmv2"].settings(TASKS["cola"], overrides)
    assert (found.epochs, found.seeds) == ((3,), 1)
    assert found.class_weights == settings["class_weights"]


SOME = ("minilmv2", "minilm", "comparative_study", "comparative_study_multilingual")


@pytest.mark.parametrize("preset", protocols.PROTOCOLS)
def test_which_tasks_share_their_trainings(preset):
    """As the table in docs/evaluation.md has it."""
    mnli = [{"mnli", "ax"}, {"xnli"}] if preset in SOME else [{"mnli", "ax", "xnli"}]
    squad = [{"squad"}, {"mlqa", "xquad"}] if preset in ("minilmv2", "minilm") else [{"squad", "mlqa", "xquad"}]

    def trainings(name):
        points = training_points(TASKS[name], protocols.PROTOCOLS[preset].settings(TASKS[name]), bf16=False)
        cells = [Cell("m", name, point, 1) for point in points]
        return frozenset(training_identity(cell, model="m", training_set="same") for cell in cells)

    for wanted in (mnli, squad):
        groups = {}
        for name in sorted(set().union(*wanted)):
            groups.setdefault(trainings(name), set()).add(name)
        assert sorted(map(sorted, groups.values())) == sorted(map(sorted, wanted))
        assert sum(map(len, groups)) == len(frozenset().union(*groups)), "grids overlap wholly or not at all"


# The published numbers are as printed: their averages hold, and each paper is spot-checked.

HERE = Path(__file__).parent
ROWS = [row for paper in published.PAPERS for row in published.read_rows(paper)]


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
    known = {column.key: task for _, task in TASKS.items() for column in columns.task_columns(task)}
    for key, metric in {column for row in ROWS for column in row.scores}:
        assert metric in known[key].metrics, (key, metric)


@pytest.mark.parametrize("case", yaml.safe_load((HERE / "spot_checks.yaml").read_text(encoding="utf-8")))
def test_spot_checks(case):
    paper, *wanted, column, metric, value = case
    found = [row for row in published.read_rows(paper) if [row.table, row.model, row.shape, row.teacher] == wanted]
    assert value in [row.scores.get((column, metric)) for row in found]


def test_costs_of_the_papers():
    minilm = {cost.shape: cost.values for cost in published.read_costs("minilm")}
    assert minilm["6x384"] == {"embedding parameters (M)": 11.7, "Transformer parameters (M)": 10.6, "seconds": 17.7,
                               "speedup": 5.3}  # fmt: skip
    heads = [cost.values["batch 64 (ms)"] for cost in published.read_costs("mlkd_bert") if cost.task == "qqp"]
    assert heads == [19.28, 17.49, 16.60]
    whole = {(cost.paper, cost.table, cost.shape): cost.values for paper in ("elm", "mlkd_bert")
             for cost in published.read_costs(paper) if cost.task is None}  # fmt: skip
    assert whole["mlkd_bert", "1", "4x312"] == {"parameters (M)": 14.5, "speedup": 9.4}
    assert whole["elm", "3", "4x768"] == {"parameters (M)": 52.2, "speedup": 3.0}


def test_rows_match_by_shape_vocabulary_and_metric():
    english = published.matching_rows([("6x384", 30_522)], [("mnli-m", "accuracy")], ["minilmv2"])
    assert {row.shape for row in english} == {"6x384"}
    assert not any(row.multilingual for row in english)
    assert {row.table for row in english} == {"1", "7", "8", "10"}
    assert not published.matching_rows([("6x384", 30_522)], [("mrpc", "f1")], ["minilmv2"]), "table 1 has accuracy"
    multilingual = published.matching_rows([("6x384", 250_002)], [("xnli", "accuracy")])
    assert multilingual and all(row.multilingual for row in multilingual)
    assert {cost.paper for cost in published.matching_costs([("4x312", 30_522)])} == {"mlkd_bert"}


def test_the_papers_of_a_preset_exist():
    assert {paper for _, protocol in protocols.PROTOCOLS.items() for paper in protocol.papers} == set(published.PAPERS)
