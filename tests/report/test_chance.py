"""Guessers beside scores: a random order and the most frequent class, in tables, cards and on pages."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from limbeck.core.records import DevelopmentFigures, Run
from limbeck.core.studies import ColumnFigure, Evaluation, EvaluationCell
from limbeck.core.studies import Figure as ScoreFigure
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.report import fine_tuned_card
from limbeck.report.chance import GUESSERS, describe_weakness, guesser_of, with_article
from limbeck.report.evaluation import evaluation_markdown
from limbeck.report.names import metric_name
from limbeck.report.quality import comparison_csv, comparison_markdown, comparison_rows
from limbeck.report.run_quality import quality_of, run_highlights
from limbeck.report.scores import weak_score_notes
from limbeck.report.student_card import write_model_card
from limbeck.report.task_scores import TaskScores, hub_results, scores_of_model

RANKED = {
    "task": "development",
    "kind": "ranking",
    "split": "d40.jsonl",
    "rows": 240,
    "queries": 40,
    "teacher": {"ndcg_at_10": 0.798, "mrr_at_10": 0.648},
    "student": {"ndcg_at_10": 0.676, "mrr_at_10": 0.54},
    "intervals": {"ndcg_at_10": [0.6, 0.75], "mrr_at_10": [0.44, 0.64]},
    "teacher_intervals": {"ndcg_at_10": [0.72, 0.88], "mrr_at_10": [0.55, 0.75]},
    "chance": {"ndcg_at_10": 0.551, "mrr_at_10": 0.408},
}
"""A reranker on 40 queries of six documents."""


@pytest.mark.parametrize(("metric", "kind", "guesser"), [
    ("accuracy", "classification", "most frequent class"),
    ("micro_f1", "classification", "most frequent class"),
    ("f1", "classification", "always the positive class"),
    ("macro_f1", "classification", None),
    ("matthews", "classification", None),
    ("accuracy", "token_classification", "most frequent tag"),
    ("f1_entity", "token_classification", None),
    ("micro_f1", "multi_label", "same classes for all rows"),
    ("exact_match", "question_answering", "no answer"),
    ("f1_answer", "question_answering", "no answer"),
    ("exact_span", "question_answering", "no answer"),
    ("ndcg_at_10", "ranking", "random order"),
    ("mrr_at_10", "ranking", "random order"),
    ("spearman", "regression", None),
    ("accuracy", None, None),
])  # fmt: skip
def test_guessers_are_those_that_everyone_knows(metric, kind, guesser):
    assert guesser_of(metric, kind) == guesser


def test_each_guesser_has_words_for_sentences():
    words = [with_article(guesser) for guesser in GUESSERS]
    assert len(set(words)) == len(GUESSERS) and all(each.startswith(("the ", "a ")) for each in words)


def test_a_reranker_stands_beside_a_random_order():
    table = comparison_markdown({"development": [RANKED]})
    assert "| nDCG@10 on d40.jsonl | 0.798 | 0.676 | 84.7 % kept; score 0.600 to 0.750 (95 %) |" in table
    assert "| ↳ random order | – | 0.551 |" in table and "| ↳ random order | – | 0.408 |" in table
    assert "Scored on the 40 queries (240 pairs) of d40.jsonl, without fine-tuning (few, so" in table
    assert "the development queries for scores." in table
    assert '"nDCG@10 on d40.jsonl, random order",,0.551,' in comparison_csv({"development": [RANKED]})
    table = comparison_csv({"development": [RANKED]}, details=True)
    assert table.startswith('figure,teacher,student,speedup,unit,"share, %",low,high')
    assert f"nDCG@10 on d40.jsonl,0.798,0.676,,,{100 * 0.676 / 0.798},0.6,0.75" in table


def test_a_reranker_whose_interval_has_the_random_order_is_at_chance():
    scores = RANKED | {"teacher_intervals": {"ndcg_at_10": [0.53, 0.66], "mrr_at_10": [0.4, 0.6]}}
    scores |= {"teacher": {"ndcg_at_10": 0.598, "mrr_at_10": 0.468}, "student": {"ndcg_at_10": 0.576}}
    table = comparison_markdown({"development": [scores]})
    assert "kept" not in table
    assert "not clearly above chance (0.551" in table


def test_a_classifier_stands_beside_the_most_frequent_class():
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 300}
    scores |= {"teacher": {"accuracy": 0.78, "f1": 0.779}, "student": {"accuracy": 0.717, "f1": 0.718}}
    scores |= {"chance": {"accuracy": 0.503, "f1": 0.67}}
    rows = comparison_rows({"development": [scores]})
    guessers = [(row.label, row.student) for row in rows if row.is_part]
    assert guessers == [("most frequent class", 0.503), ("always the positive class", 0.67)]
    assert [row.is_part for row in rows] == [False, True, False, True]


def test_f1_has_the_share_of_a_model_that_always_gives_the_positive_class_beside_it():
    scores = {"task": "mrpc", "kind": "classification", "split": "validation", "rows": 408, "positive": "equivalent"}
    scores |= {"metric": "accuracy", "teacher": {"accuracy": 0.86, "f1": 0.9}}
    scores |= {"student": {"accuracy": 0.8, "f1": 0.845}, "intervals": {"accuracy": [0.76, 0.84], "f1": [0.82, 0.88]}}
    scores |= {"teacher_intervals": {"f1": [0.87, 0.92]}, "chance": {"accuracy": 0.684, "f1": 0.812}}
    table = comparison_markdown({"development": [scores]})
    row = "| F1 (positive: equivalent) on mrpc, validation | 0.900 | 0.845 | 93.9 % kept; score 0.820 to 0.880 (95 %) |"
    guesser = "| ↳ always the positive class | – | 0.812 | 90.2 % of the teacher's |"
    assert f"{row}\n{guesser}\n" in table


def test_the_accuracy_of_a_tagger_stands_beside_the_most_frequent_tag():
    scores = {"task": "development", "kind": "token_classification", "split": "dev.conll", "rows": 400}
    scores |= {"metric": "f1_entity", "teacher": {"f1_entity": 0.9, "accuracy": 0.98}}
    scores |= {"student": {"f1_entity": 0.31, "accuracy": 0.912}, "chance": {"accuracy": 0.88}}
    scores |= {"intervals": {"f1_entity": [0.27, 0.35], "accuracy": [0.9, 0.92]}}
    scores |= {"teacher_intervals": {"f1_entity": [0.88, 0.92], "accuracy": [0.97, 0.99]}}
    table = comparison_markdown({"development": [scores]})
    row = "| Accuracy on dev.conll | 0.980 | 0.912 | 93.1 % kept; score 0.900 to 0.920 (95 %) |"
    assert f"{row}\n| ↳ most frequent tag | – | 0.880 | 89.8 % of the teacher's |\n" in table
    # Entities have no guesser.
    assert table.count("↳") == 1


def answering(chance, **fields):
    scores = {"task": "development", "kind": "question_answering", "split": "dev.json", "rows": 400}
    scores |= {"metric": "exact_match", "teacher": {"exact_match": 0.8}, "student": {"exact_match": 0.503}}
    scores |= {"intervals": {"exact_match": [0.454, 0.551]}, "teacher_intervals": {"exact_match": [0.758, 0.836]}}
    return scores | {"chance": {"exact_match": chance}} | fields


def test_a_student_that_answers_no_question_keeps_nothing():
    table = comparison_markdown({"development": [answering(0.5)]})
    assert "| ↳ no answer | – | 0.500 |" in table and "kept" not in table
    warning = "The student's exact match on dev.json is not clearly above that of a model that gives no answers: 0.503"
    assert warning in table
    meaningless = comparison_markdown({"development": [answering(0.503, only_answer="no answer")]})
    assert "The student predicts 'no answer' for every" in meaningless and "kept" not in meaningless
    # A student that can answer keeps its share.
    table = comparison_markdown({"development": [answering(0.2)]})
    assert "62.9 % kept" in table and "not clearly above" not in table


@pytest.mark.parametrize(("kind", "metric", "words"), [
    ("question_answering", "exact_span",
     "exact answer windows on held-out rows are not clearly above that of a model that gives no answers"),
    ("multi_label", "micro_f1",
     "micro F1 on held-out rows is not clearly above that of a model that gives all rows the same classes"),
    ("token_classification", "accuracy",
     "accuracy on held-out rows is not clearly above that of the most frequent tag"),
])  # fmt: skip
def test_students_on_held_out_rows_are_compared_with_guessers(kind, metric, words):
    task = {"task": kind, "metric": metric, "rows": 200, "teacher": 0.9, "student": 0.61, "agreement": 0.65}
    task |= {"intervals": {metric: [0.57, 0.65]}, "chance": {metric: 0.6}}
    table = comparison_markdown({"task": task})
    assert f"The student's {words}: 0.610 against 0.600." in table
    guesser = with_article(guesser_of(metric, kind))
    assert f"| ↳ {metric_name(metric)} of {guesser} | – | 0.600 |" in table


def test_rows_that_were_held_out_from_the_training_files_have_guessers_too():
    task = {"task": "ranking", "metric": "ndcg_at_10", "rows": 240, "queries": 40, "teacher": 0.6, "student": 0.58}
    task |= {"agreement": 0.9, "agreement_metric": "spearman", "stage": "reranker", "chance": {"ndcg_at_10": 0.551}}
    table = comparison_markdown({"task": task})
    assert "| ↳ nDCG@10 of a random order | – | 0.551 |" in table
    assert "Task: 40 queries (240 pairs) held out from the training files of stage 'reranker': few, so" in table


def test_a_page_and_a_card_have_the_guesser(tmp_path):
    record = Run.read({"evaluation": {"development": [RANKED]}})
    corpus = {"documents": 600, "trained_documents": 360, "held_out_documents": 240}
    corpus |= {"queries": 100, "trained_queries": 60, "held_out_queries": 40}
    record.corpus = Run.read({"corpus": corpus}).corpus
    run = SimpleNamespace(record=record, stages=(), status=SimpleNamespace(status="finished"))
    quality = quality_of(run)
    assert quality is not None and quality.over == "40 queries (240 pairs)"
    details = [highlight.detail for highlight in run_highlights(run)]
    assert any("a random order has 0.551" in detail for detail in details)
    card = write_model_card(record, tmp_path).read_text(encoding="utf-8")
    assert "| ↳ random order | – | 0.551 |" in card
    assert "60 queries (360 pairs) to train on." in card


def ranked_evaluation():
    figure = {"mean": 59.8, "runs": [59.8], "interval": [53.0, 66.6], "chance": 55.1}
    figure["metrics"] = {"ndcg_at_10": {"mean": 59.8, "runs": [59.8]}}
    accuracy = {"mean": 78.0, "runs": [78.0], "interval": [73.0, 82.3], "chance": 50.3, "rows": 300}
    accuracy["metrics"] = {"accuracy": {"mean": 78.0, "runs": [78.0]}}
    chosen = {"settings": {"length": 32}, "runs": 1, "wanted": 1, "points": 1, "seeds": [1]}
    columns = [
        {"key": "own", "title": "Own", "task": "own", "metric": "ndcg_at_10", "kind": "ranking", "splits": ["x"]},
        {"key": "cls", "title": "Cls", "task": "cls", "metric": "accuracy", "kind": "classification", "splits": ["x"]},
    ]
    models = [{"name": "here", "columns": {"own": figure, "cls": accuracy}, "chosen": {"own": chosen}}]
    return Evaluation.read({"preset": "quick", "columns": columns, "models": models})


def test_the_table_of_an_evaluation_has_guessers_last():
    text = evaluation_markdown(ranked_evaluation())
    assert "| *most frequent class* | – | 50.3 |\n| *random order* | 55.1 | – |\n" in text
    assert "95 % intervals are over the rows or queries of a task (one run)." in text


def evaluation_of_seeds(teacher, student, chance=68.4):
    """An evaluation of two models with several seeds, whose table has a share of the teacher's score."""
    models = []
    for name, runs in (("teacher", teacher), ("student", student)):
        figure = ColumnFigure.of_runs(runs, metrics={"accuracy": ScoreFigure.of_runs(runs)}, chance=chance)
        models.append({"name": name, "columns": {"mrpc": figure.to_dict()}})
    models[1]["retention"] = {"mrpc": 99.7}
    column = {"key": "mrpc", "title": "MRPC", "task": "mrpc", "metric": "accuracy", "kind": "classification"}
    return Evaluation.read({"preset": "quick", "columns": [column], "models": models})


@pytest.mark.parametrize(
    ("teacher", "student", "share"),
    [
        ([86.0, 87.0, 86.5], [80.1, 79.5, 80.4], "99.7 %"),
        # The means are above 68.4, and the intervals reach below it.
        ([68.4, 69.6, 68.1], [80.1, 79.5, 80.4], "–"),
        ([86.0, 87.0, 86.5], [68.6, 68.4, 68.4], "–"),
        # Seeds that agree have no interval, so their mean is compared.
        ([86.0, 86.0, 86.0], [68.9, 68.9, 68.9], "99.7 %"),
        ([86.0, 86.0, 86.0], [68.4, 68.4, 68.4], "–"),
    ],
    ids=["above", "teacher at chance", "student at chance", "seeds agree", "seeds agree at chance"],
)
def test_the_interval_over_seeds_tells_a_mean_from_chance(teacher, student, share):
    summary = evaluation_of_seeds(teacher, student)
    assert f"| *↳ % of teacher* | {share} |" in evaluation_markdown(summary)


def test_seeds_that_agree_get_no_interval():
    agreeing = evaluation_of_seeds([86.0, 86.0], [62.5, 62.5])
    assert "95 %" not in evaluation_markdown(agreeing)
    text = evaluation_markdown(evaluation_of_seeds([86.0, 86.0], [62.5, 62.6]))
    assert text.count("↳ 95 %") == 1 and "95 % intervals are over seeds (Student's t)." in text


def test_a_fine_tuned_model_at_chance_is_no_teacher():
    summary = ranked_evaluation()
    # The intervals begin at 53.0 for the reranker, below the random order's 55.1, and at 73.0 for the classifier.
    [note] = weak_score_notes(summary)
    assert note.startswith("Own: the nDCG@10 is not clearly above chance (55.1, without reading the rows).")
    assert note.endswith("look for a better one, or train it longer or on more rows.")
    summary.models[0].columns["own"].interval = [55.2, 66.6]
    assert weak_score_notes(summary) == []


def test_a_fine_tuned_model_with_a_low_score_is_no_teacher():
    summary = ranked_evaluation()
    ranked = summary.models[0].columns["own"]
    ranked.mean, ranked.interval, ranked.chance = 7.2, [4.5, 9.9], None
    [note] = weak_score_notes(summary)
    assert note.startswith(
        "Own: the nDCG@10 is only 7.2. A student can only imitate its teacher: look for a better one"
    )
    # The limit is that of a teacher in a distillation.
    ranked.mean, ranked.interval = 20.0, [18.0, 22.0]
    assert weak_score_notes(summary) == []


def test_the_cards_of_a_reranker_have_the_guesser_and_count_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(fine_tuned_card, "teacher_facts", lambda name: {"hub_id": None, "card": None})
    summary = ranked_evaluation()
    settings = {"warmup": 0.1, "schedule": "linear", "weight_decay": 0.0, "stride": 0, "epochs": 1, "batch_size": 8,
                "learning_rate": 1e-5, "length": 32, "bf16": False}  # fmt: skip
    cell = EvaluationCell.read({"model": str(tmp_path), "seed": 1, "select": "x", "settings": settings,
                                "rows": {"x": 240, "train": 600}})  # fmt: skip
    task = replace(TASKS["mrpc"], name="own", title="Own", kind="ranking")
    card = fine_tuned_card.write_fine_tuned_card(cell, task, summary, tmp_path).read_text(encoding="utf-8")
    assert "| Task | Pairs | Metric |" in card and "- Pairs: 600 of Own" in card
    assert "- Own: a random order has 55.1." in card and "- Cls: the most frequent class has 50.3." in card

    # Older records count pairs alone.
    cell.queries = {"x": 40, "train": 100}
    card = fine_tuned_card.write_fine_tuned_card(cell, task, summary, tmp_path).read_text(encoding="utf-8")
    assert "| Task | Queries | Metric |" in card and "| Own | 40 (240 pairs) | nDCG@10 |" in card
    assert "- Queries: 100 (600 pairs) of Own" in card

    scores = scores_of_model(summary.models[0], summary)
    assert isinstance(scores, TaskScores)
    card = write_model_card(Run(), tmp_path, scores=scores).read_text(encoding="utf-8")
    assert "- Own: a random order has 55.1." in card


def test_a_score_at_chance_is_no_result_of_a_card_and_called_so(tmp_path):
    summary = ranked_evaluation()
    for lowest, is_at_chance in ((53.0, True), (55.2, False)):
        summary.models[0].columns["own"].interval = [lowest, 66.6]
        scores = scores_of_model(summary.models[0], summary)
        names = [result.dataset_name for result in hub_results(scores)]
        assert names == (["Cls"] if is_at_chance else ["Own", "Cls"])
        card = write_model_card(Run(), tmp_path, scores=scores).read_text(encoding="utf-8")
        warning = "- Own: a random order has 55.1. The student's score is not clearly above it. So nothing shows that"
        assert (warning in card) is is_at_chance
        assert "- Cls: the most frequent class has 50.3.\n" in card
    # Without an interval, as over several seeds, the score itself is compared.
    summary.models[0].columns["own"].interval = None
    for mean, count in ((55.1, 1), (55.2, 2)):
        summary.models[0].columns["own"].mean = mean
        assert len(list(hub_results(scores_of_model(summary.models[0], summary)))) == count


def test_older_records_have_rows_alone():
    scores = {name: value for name, value in RANKED.items() if name not in ("queries", "chance", "intervals")}
    table = comparison_markdown({"development": [scores]})
    assert "Scored on the 240 rows of d40.jsonl" in table and "random order" not in table
    assert DevelopmentFigures.read(scores).queries is None


def test_the_clause_on_a_weak_score_has_the_number_of_its_metric():
    for metric, begin in (("exact_span", "exact answer windows are"), ("f1_answer", "answer F1 is")):
        name = metric_name(metric)
        assert describe_weakness(name, 0.05, lowest=0.01, chance=0.0) == f"{begin} only 0.050"
        assert describe_weakness(name, 0.0, lowest=0.0, chance=0.0).startswith(f"{begin} not clearly above chance")
