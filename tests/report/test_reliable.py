"""Figures that do not tell students apart have no share, and stay out of verdict, card and results."""

from csv import DictReader
from io import StringIO

import pytest
from rich.console import Console
from scipy.stats import binomtest

from limbeck.core import studies
from limbeck.core.blocks import Notes
from limbeck.core.records import RunEvaluation, SourceNotes
from limbeck.core.records.run_evaluation import FEWEST_DOCUMENTS, SUMMARY_IN_BODIES
from limbeck.report import comparison_markdown, comparison_rows
from limbeck.report.evaluation import evaluation_csv
from limbeck.report.gains import gain_sentences
from limbeck.report.names import metric_name
from limbeck.report.quality import AGREEMENT, comparison_csv, comparison_table, quality_blocks
from limbeck.report.quality_notes import comparison_notes
from limbeck.report.run_quality import Quality
from limbeck.report.scores import share_kept
from limbeck.report.student_card import model_card
from limbeck.report.student_results import development_results, held_out_results
from limbeck.report.text_notes import changed_text, skipped_text, taken_text
from tests.support.run_figures import evaluation, retrieval

RESULT = "Teacher and student"


def cells(values):
    return {row.label: row.cells() for row in comparison_rows(values) if not row.is_part}


def first_note(values):
    first, *_ = DictReader(StringIO(comparison_csv(values, details=True)))
    return first["note"]


def test_a_measure_that_tells_has_a_share_and_the_start_beside_it():
    values = evaluation()
    assert cells(values)["Passage retrieval MRR@10"][1:] == (
        "0.800",
        "0.600",
        "75.0 % kept; score 0.580 to 0.620 (95 %)",
    )
    starts = [row.student for row in comparison_rows(values) if row.label == "untrained start"]
    assert starts == [0.3, 0.4, 0.4, 0.4, 0.4]
    text = comparison_markdown(values, reliable_only=True)
    assert "\n| ↳ untrained start | – | 0.300 |" in text, "Markdown drops spaces that would indent a part"
    assert "Passage retrieval MRR@10" in text and "Starts from teacher layers 1, 6." in text
    assert {result.metric_type for result in held_out_results(RunEvaluation.read(values), "x")} == {
        "spearmanr", "mrr_at_10", "recall_at_1", "ndcg_at_10"
    }  # fmt: skip


def test_a_student_below_the_untrained_start_is_told_so():
    values = evaluation()
    values["agreement"]["interval"] = [0.65, 0.75]
    start = values["start"]["retrieval"]
    assert "The training " not in comparison_markdown(values)
    # The student's interval ends at 0.62. What got better stands in the same note, which does not deny it.
    start["mrr_at_10"] = 0.61
    assert (
        "The training did not improve the retrieval MRR@10: 0.600 is below the untrained start's 0.610, which may be "
        "chance. The training improved the agreement: 0.700 against 0.300. Train more steps, or on more text.\n"
    ) in comparison_markdown(values)
    values["start"]["agreement"]["spearman"] = 0.7
    text = comparison_markdown(values)
    assert "The training changed little. The training did not improve the retrieval MRR@10: 0.600 is below" in text
    assert (
        "The training did not improve the agreement: 0.700 equals the untrained start's 0.700. Train more steps, or on "
        "more text. Or keep a student without training, which takes less time: --steps 0 makes one.\n"
    ) in text
    start["mrr_at_10"] = 0.63
    text = comparison_markdown(values)
    assert "The training made the retrieval MRR@10 worse: 0.600 is below the untrained start's 0.630. " in text
    assert "Train more steps or on more text, or start from the teacher's layers" in text
    assert "changed little" not in text


def test_a_figure_without_an_interval_that_rose_or_fell_is_told_and_not_judged():
    values = evaluation(documents=FEWEST_DOCUMENTS - 1)
    values["start"]["retrieval"]["mrr_at_10"] = 0.61
    text = comparison_markdown(values)
    assert "The agreement rose from the untrained start's 0.300 to 0.700, which may be chance. Train more" in text
    assert "improved" not in text
    values["start"]["agreement"]["spearman"] = 0.75
    text = comparison_markdown(values)
    assert "The training did not improve the agreement: 0.700 is below the untrained start's 0.750. Train more" in text
    assert "worse" not in text


def test_other_figures_of_a_retrieval_that_fell_are_told_where_the_main_one_does_not_tell():
    values = evaluation()
    values["agreement"]["interval"] = [0.65, 0.75]
    start = values["start"]["retrieval"]
    start |= {"mrr_at_10": 0.59, "recall_at_10": 0.61, "ndcg_at_10": 0.58}
    values["student"]["retrieval"]["intervals"] = {"recall_at_10": [0.57, 0.63], "ndcg_at_10": [0.57, 0.63]}
    unclear = (
        "The training did not clearly improve the retrieval MRR@10: 0.600 is not clearly above the untrained start's "
        "0.590. The training did not improve the retrieval recall@10: 0.600 is below the untrained start's 0.610, "
        "which may be chance. The training improved the agreement: 0.700 against 0.300."
    )
    assert unclear in comparison_markdown(values)
    # A main figure that tells speaks for the others, but not for one that is clearly worse.
    start["mrr_at_10"] = 0.4
    assert "The training " not in comparison_markdown(values)
    start["recall_at_10"] = 0.65
    assert (
        "The training made the retrieval recall@10 worse: 0.600 is below the untrained start's 0.650. The training "
        "improved the retrieval MRR@10: 0.600 against 0.400."
    ) in comparison_markdown(values)


def test_a_figure_over_few_texts_that_fell_is_told_beside_the_other():
    values = evaluation(pool=78, sentences=78)
    values["agreement"]["interval"] = [0.65, 0.75]
    values["start"]["agreement"]["spearman"] = 0.72
    # The start is within the interval of a teacher of 0.62, which is no reason to be silent about so few queries.
    for teacher in (0.8, 0.62):
        values["teacher"] = evaluation(teacher=teacher, pool=78)["teacher"]
        values["start"]["retrieval"]["mrr_at_10"] = 0.61
        text = comparison_markdown(values)
        assert "The training did not improve the retrieval MRR@10: 0.600 is below" in text
        assert "The training did not improve the agreement: 0.700 is below the untrained start's 0.720, which" in text
        assert "does not tell good students" not in text


KEEP_TRAINED = "Train more steps, on more text or with a lower learning rate, or keep the trained start."
KEEP_UNTRAINED = (
    "Train more steps, on more text or with a lower learning rate, or keep a student without training: --steps 0 makes "
    "one."
)


@pytest.mark.parametrize(("start", "advice"), [
    ({}, KEEP_UNTRAINED),
    ({"fitted_tokens": 15_383}, KEEP_UNTRAINED),
    ({"trained_model": "mine"}, KEEP_TRAINED),
])  # fmt: skip
def test_the_advice_after_a_loss_is_one_that_can_be_followed(start, advice):
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"student": {"accuracy": 0.66}, "intervals": {"accuracy": [0.612, 0.705]}, "start": {"accuracy": 0.75}}
    summary = {"summary": "Starts from teacher layers 1, 6."}
    [line] = [it for it in comparison_notes({"development": [scores], "start": summary | start}) if "worse" in it]
    assert line.endswith(f"start's 0.750. {advice}")


def test_a_half_is_rounded_alike_in_a_table_and_in_a_sentence():
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"student": {"accuracy": 0.7525}, "intervals": {"accuracy": [0.708, 0.792]}, "start": {"accuracy": 0.76}}
    text = comparison_markdown({"development": [scores], "start": {"summary": "Starts from teacher layers 1, 6."}})
    assert "0.753 is below" in text and "| 0.753 |" in text and "0.752" not in text


def test_a_start_of_two_students_says_so():
    values = evaluation()
    values["start"] |= {"fitted_tokens": 15_383, "summary": "Both start from teacher layers 1, 6."}
    note = (
        "Untrained start: for each figure, the better of two students of the same shape without training: one with the "
        "layers as they are copied, and one with the same layers fitted to the teacher on 15,383 tokens. The "
        "difference is the gain from the training. Both start from teacher layers 1, 6."
    )
    more_text = (
        " This may flatter the training, because a fit to more text can be better: `limbeck distill --steps 0` makes "
        "such a student."
    )
    assert f"{note}{more_text}\n" in comparison_markdown(values)
    values["start"]["fitted_tokens"] = 50_000
    assert f"{note}\n".replace("15,383", "50,000") in comparison_markdown(values)


def test_a_figure_below_the_start_does_not_hide_one_that_changed_little():
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"student": {"accuracy": 0.66}, "intervals": {"accuracy": [0.612, 0.705]}}
    development = [scores | {"start": {"accuracy": 0.75}}, scores | {"task": "news", "start": {"accuracy": 0.68}}]
    text = comparison_markdown({"development": development, "start": {"summary": "Starts from teacher layers 1, 6."}})
    assert (
        "The training made the accuracy on reviews, validation worse: 0.660 is below the untrained start's 0.750. The "
        "training did not improve the accuracy on news, validation: 0.660 is below the untrained start's 0.680, which "
        f"may be chance. {KEEP_UNTRAINED}\n"
    ) in text
    assert "start from the teacher's layers" not in text, "a start with a head has them"


def test_the_untrained_start_and_a_guesser_have_their_share_beside_the_students():
    # Shares of the teacher's score: an untrained student keeps nearly as much as the trained one.
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"teacher": {"accuracy": 0.75}, "student": {"accuracy": 0.66}, "start": {"accuracy": 0.6}}
    scores |= {"intervals": {"accuracy": [0.612, 0.705]}, "chance": {"accuracy": 0.525}}
    values = {"development": [scores], "start": {"summary": "Starts from teacher layers 1, 6."}}
    changes = [row.cells().change for row in comparison_rows(values)]
    assert changes == ["88.0 % kept; score 0.612 to 0.705 (95 %)", "80.0 % kept", "70.0 % of the teacher's"]
    [_, start, guesser] = DictReader(StringIO(comparison_csv(values, details=True)))
    assert [float(row["share, %"]) for row in (start, guesser)] == pytest.approx([80, 70])

    # Where the student has no share, they have none.
    scores["teacher"]["accuracy"] = 0.5
    assert [row.cells().change for row in comparison_rows(values)] == ["95 %: 0.612 to 0.705", "", ""]


@pytest.mark.parametrize(("start", "note"), [
    # The difference of both figures varies √2 times as much as one of them: clear are those below 0.592 or above 0.724.
    (0.59, ""),
    (0.60, "improve the accuracy on reviews, validation: 0.660 is not clearly above the untrained start's 0.600."),
    (0.72, "improve the accuracy on reviews, validation: 0.660 is below the untrained start's 0.720, which may be cha"),
    (0.73, "made the accuracy on reviews, validation worse: 0.660 is below the untrained start's 0.730. Train"),
])  # fmt: skip
def test_a_student_that_gained_little_is_told_so(start, note):
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"student": {"accuracy": 0.66}, "start": {"accuracy": start}, "intervals": {"accuracy": [0.612, 0.705]}}
    values = {"development": [scores], "start": {"summary": "Starts from teacher layers 1, 6."}}
    text = comparison_markdown(values)
    assert note in text
    assert ("The training changed little" in text) == (start in (0.60, 0.72))


def test_a_figure_without_an_interval_that_rose_is_told_beside_clear_gains():
    few_documents = evaluation(documents=FEWEST_DOCUMENTS - 1)
    rose = "The agreement rose from the untrained start's 0.300 to 0.700, which may be chance."
    gained = "The training improved the retrieval MRR@10: 0.600 against 0.400."
    text = comparison_markdown(few_documents)
    assert f"{rose} {gained}" in text or f"{gained} {rose}" in text
    # There is nothing to mend by more training.
    assert "Train more" not in text
    few_documents["agreement"]["interval"] = [0.65, 0.75]
    assert "The training " not in comparison_markdown(few_documents)


def test_a_figure_without_an_interval_is_not_said_to_have_improved():
    values = evaluation()
    values["start"]["retrieval"]["mrr_at_10"] = 0.61
    text = comparison_markdown(values)
    assert "The training did not improve the retrieval MRR@10" in text
    assert "improved the agreement" not in text and "changed little" not in text


def test_a_further_score_that_clearly_fell_or_rose_is_told_too():
    scores = {"task": "names", "kind": "token_classification", "metric": "entity_f1", "split": "validation"}
    scores["rows"] = 400
    scores |= {"student": {"entity_f1": 0.396, "accuracy": 0.544, "entity_recall": 0.493}}
    scores |= {"start": {"entity_f1": 0.391, "accuracy": 0.604, "entity_recall": 0.455}}
    scores["intervals"] = {"entity_f1": [0.38, 0.41], "accuracy": [0.533, 0.555], "entity_recall": [0.476, 0.511]}
    values = {"development": [scores], "start": {"summary": "Starts from teacher layers 1, 6."}}
    text = comparison_markdown(values)
    assert "made the accuracy on names, validation worse: 0.544 is below the untrained start's 0.604" in text
    assert "improved the entity recall on names, validation: 0.493 against 0.455" in text
    assert "changed little" not in text
    # A student that gives one answer to all rows has no gains.
    scores["only_answer"] = "O"
    assert "The training" not in comparison_markdown(values)


@pytest.mark.parametrize(("start", "agreement", "sentence"), [
    (0.58, 0.6, ""),
    (0.73, 0.6, "did not improve the accuracy on held-out rows: 0.720 is below the untrained start's 0.730, which"),
    (0.58, 0.8, "did not clearly improve the agreement with the teacher on held-out rows: 0.820 is not clearly above"),
    (0.73, 0.8, "The training changed little."),
])  # fmt: skip
def test_rows_held_out_from_training_files_tell_of_a_small_gain_too(start, agreement, sentence):
    task = {"task": "classification", "metric": "accuracy", "rows": 100, "student": 0.72, "agreement": 0.82}
    task |= {"start": {"accuracy": start}, "start_agreement": agreement}
    text = comparison_markdown({"task": task, "start": {"summary": "Starts from teacher layers 1, 6."}})
    assert sentence in text and ("The training " in text) == bool(sentence)
    assert ("changed little" in text) == (sentence == "The training changed little.")
    assert "worse" not in text


def test_figures_of_held_out_rows_have_their_interval_in_the_table():
    task = {"task": "classification", "metric": "accuracy", "rows": 100, "student": 0.72, "agreement": 0.82}
    values = {"task": task | {"teacher": 0.9}}
    table = {row.label: row.cells() for row in comparison_rows(values)}
    for label, right in ((AGREEMENT, 82), ("accuracy by the labels", 72)):
        interval = binomtest(right, 100).proportion_ci(method="wilson")
        assert table[label].change == f"95 %: {interval.low:.3f} to {interval.high:.3f}"


def test_the_accuracy_of_tagged_words_has_no_interval_of_a_share_of_rows(copied, page_of):
    # It is a share of words, of which 100 rows have many.
    task = {"metric": "accuracy", "rows": 100, "labelled": False, "agreement": 0.82, "start_agreement": 0.78}
    for kind, has_interval in (("classification", True), ("token_classification", False)):
        values = {"task": task | {"task": kind}, "start": {"summary": "Starts from teacher layers 1, 6."}}
        assert ("The training changed little" in comparison_markdown(values)) == has_interval
        [part] = page_of(copied(name=kind, edit={"evaluation": values})).parts
        assert ("95 %" in part.highlights[0].detail) == has_interval


@pytest.mark.parametrize(("values", "caution", "reason"), [
    (evaluation(teacher=0.95), "too easy", "above 0.9"),
    (evaluation(pool=199), "too few passages", "Fewer than 200 passages"),
])  # fmt: skip
def test_saturated_and_small_retrievals_stay_out(values, caution, reason):
    row = cells(values)["Passage retrieval MRR@10"]
    assert row[3] == f"{caution}; 95 %: 0.580 to 0.620"
    assert reason in comparison_markdown(values)
    card = comparison_markdown(values, reliable_only=True)
    assert "| Passage retrieval" not in card and "| Agreement, far to near" in card
    assert "Passage retrieval" not in card and reason not in card and "Agreement: rank correlation" in card
    assert [result.metric_type for result in held_out_results(RunEvaluation.read(values), "x")] == ["spearmanr"]


def test_a_retrieval_that_a_student_without_training_does_as_well_as_the_teacher_stays_out(copied, page_of):
    values = evaluation(teacher=0.62)
    reason = (
        "The untrained start's MRR@10 of 0.610 is not clearly below the teacher's 0.620 (95 %: 0.600 to 0.640), so the "
        "retrieval on this text does not tell good students from poor ones."
    )
    assert reason not in comparison_markdown(values)
    start = values["start"]["retrieval"]
    start["mrr_at_10"] = 0.61
    text = comparison_markdown(values)
    assert reason in text and "did not improve the retrieval" not in text
    for name in ("MRR@10", "nDCG@10", "recall@1"):
        assert "as good untrained" in cells(values)[f"Passage retrieval {name}"][3]
    assert "Passage retrieval" not in comparison_markdown(values, reliable_only=True)
    assert [result.metric_type for result in held_out_results(RunEvaluation.read(values), "x")] == ["spearmanr"]
    [part] = page_of(copied(edit={"evaluation": values})).parts
    assert "agreement" in part.highlights[0].label
    # Without a figure that tells, the reason stands in the place of the verdict.
    few = evaluation(teacher=0.62, sentences=51)
    few["start"]["retrieval"]["mrr_at_10"] = 0.61
    [part] = page_of(copied(name="few", edit={"evaluation": few})).parts
    assert any("quality cannot be judged" in fact and reason in fact for fact in part.facts)
    # A clear loss is told all the same: the student's interval ends at 0.62.
    start["mrr_at_10"] = 0.63
    assert "The training made the retrieval MRR@10 worse: 0.600 is below" in comparison_markdown(values)


def test_an_agreement_of_few_documents_is_in_the_table_alone(copied, page_of):
    """Many sentences of few documents are a small sample: they have no interval."""
    values = evaluation(teacher=0.95, documents=FEWEST_DOCUMENTS - 1)
    text = comparison_markdown(values)
    assert "| Agreement, far to near (Spearman) | – | 0.700 | too few documents |" in text
    assert "from 4 held-out documents. " in text and "Fewer than 5 documents are too few for a 95 % interval" in text
    assert "Agreement" not in comparison_markdown(values, reliable_only=True)
    assert list(held_out_results(RunEvaluation.read(values), "x")) == []
    [part] = page_of(copied(edit={"evaluation": values})).parts
    assert not any("agreement" in highlight.label for highlight in part.highlights)

    enough = evaluation(teacher=0.95, documents=FEWEST_DOCUMENTS)
    assert "too few" not in comparison_markdown(enough)
    assert [result.metric_type for result in held_out_results(RunEvaluation.read(enough), "x")] == ["spearmanr"]


def test_notes_of_a_card_are_on_its_own_figures():
    card = comparison_markdown(evaluation(pool=30, sentences=30), reliable_only=True)
    assert "held_out" not in card and "Untrained start" not in card and "95 %" not in card
    text = comparison_markdown(evaluation(pool=30, sentences=30))
    assert "held_out" in text and "Untrained start" in text and "95 %" in text


def test_a_verdict_names_the_start_and_no_rough_figure(copied, page_of):
    values = evaluation()
    values["agreement"]["interval"] = [0.65, 0.75]
    [part] = page_of(copied(edit={"evaluation": values})).parts
    quality, share = part.highlights[:2]
    assert (quality.value, quality.label) == ("0.600", "held-out passage retrieval MRR@10")
    assert "an untrained start has 0.400" in quality.detail and share.value == "75.0 %"
    assert share.label == "of the teacher's MRR@10, 50.0 % without the training"
    assert share.detail == "95 %: 72.5 to 77.5 %; the teacher has 0.800", "0.58 to 0.62 of 0.8"
    assert not any("untrained start" in fact for fact in part.facts)
    [rough] = page_of(copied(name="rough", edit={"evaluation": evaluation(pool=30, sentences=30)})).parts
    figures = [rough.subtitle, *(highlight.label for highlight in rough.highlights)]
    assert not any("MRR" in figure or "agreement" in figure for figure in figures)
    assert any("quality cannot be judged" in fact for fact in rough.facts)


def test_a_start_that_is_better_than_the_teacher_is_told_beside_the_share(copied, page_of):
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400, "metric": "accuracy"}
    scores |= {"teacher": {"accuracy": 0.8}, "student": {"accuracy": 0.78}, "start": {"accuracy": 0.85}}
    scores["intervals"] = {"accuracy": [0.74, 0.82]}
    [part] = page_of(copied(edit={"evaluation": {"development": [scores]}})).parts
    assert part.highlights[1].label == "of the teacher's accuracy, and more than all of it without the training"


def test_every_share_of_a_retrieval_has_its_interval():
    values = evaluation()
    values["student"]["retrieval"]["intervals"] = {"ndcg_at_10": [0.57, 0.63], "recall_at_10": [0.56, 0.64]}
    values["asymmetric"] = values["student"]["retrieval"]
    rows = [row for row in comparison_rows(values) if row.teacher == 0.8]
    assert len(rows) == 8 and all("kept; score " in row.change for row in rows)


def test_a_figure_that_is_not_above_its_start_is_told_below_the_tiles_and_kept_out_of_the_results(copied, page_of):
    values = evaluation()
    values["start"]["retrieval"] |= {"mrr_at_10": 0.61, "recall_at_1": 0.6}
    values["agreement"]["interval"] = [0.65, 0.75]
    folder = copied(edit={"evaluation": values})
    [part] = page_of(folder).parts
    line = (
        "The training did not improve the retrieval MRR@10: 0.600 is below the untrained start's 0.610, which may be "
        "chance. The training improved the agreement: 0.700 against 0.300."
    )
    assert line in part.facts
    results = held_out_results(RunEvaluation.read(values), "sentence-similarity")
    assert [result.metric_type for result in results] == ["spearmanr"], "no nDCG without the main figure"
    values["start"]["agreement"]["spearman"] = 0.7
    card = model_card({"name": "mine", "evaluation": values}, folder / "student")
    limits = card[card.index("## Limits") :]
    assert "- The training changed little. The training did not improve the retrieval MRR@10: 0.600 is below" in limits
    assert "spearmanr" not in card and "mrr_at_10" not in card and "ndcg_at_10" not in card


def test_an_unclear_gain_is_told_beside_a_clear_main_figure_and_where_its_figure_is_left_out(copied, page_of):
    # The retrieval is over too few passages, so the agreement, which is clearly gained, stands for the run.
    values = evaluation(pool=30)
    values["start"]["retrieval"]["mrr_at_10"] = 0.61
    folder = copied(edit={"evaluation": values})
    [part] = page_of(folder).parts
    assert "agreement" in part.highlights[0].label
    assert any("The training did not improve the retrieval MRR@10" in fact for fact in part.facts)
    card = model_card({"name": "mine", "evaluation": values}, folder / "student")
    assert "The training did not improve the retrieval MRR@10" in card[card.index("## Limits") :]


def test_an_unclear_gain_is_the_first_note_and_not_dim(copied, page_of):
    values = evaluation()
    values["start"]["retrieval"]["mrr_at_10"] = 0.61
    said = "The training did not improve the retrieval MRR@10: "
    assert comparison_notes(values)[0].startswith(said)
    [section] = [it for it in page_of(copied(edit={"evaluation": values})).parts[0].sections if it.title == RESULT]
    for blocks in (section.blocks, quality_blocks(values)):
        gain, other = [block for block in blocks if isinstance(block, Notes)]
        assert gain.warning and gain.lines[0].startswith(said) and not other.warning
    text = StringIO()
    console = Console(file=text, force_terminal=True, color_system="standard", width=300, _environ={})
    console.print(comparison_table(values))
    [line] = [line for line in text.getvalue().splitlines() if said in line]
    assert line.startswith("\x1b[33m"), "the yellow of warnings"
    [other_line] = [line for line in text.getvalue().splitlines() if "Untrained start: " in line]
    assert other_line.startswith("\x1b[2m")


def test_a_score_on_development_rows_that_is_not_above_its_start_is_no_result():
    scores = {"task": "reviews", "kind": "classification", "split": "validation", "rows": 400}
    scores |= {"student": {"accuracy": 0.66}, "intervals": {"accuracy": [0.612, 0.705]}}
    for start, count in ((0.59, 1), (0.6, 0), (0.75, 0)):
        values = RunEvaluation.read({"development": [scores | {"start": {"accuracy": start}}]})
        assert len(list(development_results(values, "text-classification"))) == count


@pytest.mark.parametrize(("start", "results"), [
    # F1, recall and precision of the start; the student has 0.396, 0.493 and 0.331.
    ((0.391, 0.455, 0.343), []),
    ((0.3, 0.3, 0.3), ["f1_entity", "recall_entity", "precision_entity"]),
    ((0.36, 0.3, 0.35), ["f1_entity"]),
    ((0.37, 0.3, 0.35), []),
    ((0.42, 0.3, 0.3), []),
])  # fmt: skip
def test_a_part_of_an_f1_is_no_result_without_the_f1(start, results):
    metrics = ("f1_entity", "recall_entity", "precision_entity")
    student = dict(zip(metrics, (0.396, 0.493, 0.331), strict=True))
    scores = {"task": "names", "kind": "token_classification", "metric": "f1_entity", "rows": 400, "student": student}
    scores["start"] = dict(zip(metrics, start, strict=True))
    scores["intervals"] = {metric: [value - 0.02, value + 0.02] for metric, value in student.items()}
    values = RunEvaluation.read({"development": [scores]})
    assert [result.metric_name for result in development_results(values, "token-classification")] == [
        f"{metric_name(metric)} on development rows" for metric in results
    ]


def test_a_figure_of_retrieval_that_is_not_gained_leaves_the_main_one_alone():
    values = evaluation()
    # Over 500 queries, the interval of 0.6 begins at 0.556.
    values["start"]["retrieval"]["recall_at_1"] = 0.57
    results = held_out_results(RunEvaluation.read(values), "sentence-similarity")
    assert [result.metric_type for result in results] == ["spearmanr", "mrr_at_10"]


SENTENCES = "The agreement with the teacher was measured on only 51 held-out sentences, and at least 200 are needed."
PASSAGES = "The retrieval was measured on only 120 held-out passages, and at least 200 are needed."
DOCUMENTS = "The agreement with the teacher was measured on only 4 held-out documents, and at least 5 are needed."
EASY = (
    "The retrieval is too easy for the teacher: its MRR@10 is 0.950, and above 0.9 even poor students come close to it."
)
FEW_PAIRS = "Only 13 (sentence, passage) pairs can be made from 1 held-out document; at least 20 are needed."


@pytest.mark.parametrize(("values", "reasons"), [
    (evaluation(sentences=51, pool=120), [SENTENCES, PASSAGES]),
    (evaluation(sentences=51, teacher=0.95), [SENTENCES, EASY]),
    (evaluation(documents=4, pool=120), [DOCUMENTS, PASSAGES]),
    (evaluation(pool=120) | {"agreement": None}, [PASSAGES]),
    (
        {"agreement": evaluation(sentences=51)["agreement"], "unavailable": {"retrieval": FEW_PAIRS}},
        [SENTENCES, f"No retrieval: {FEW_PAIRS.replace('Only', 'only')}"],
    ),
], ids=["few", "few or easy", "few documents", "no agreement", "no retrieval"])  # fmt: skip
def test_a_run_that_cannot_be_judged_says_by_which_number(copied, page_of, values, reasons):
    [part] = page_of(copied(edit={"evaluation": values}), render=False).parts
    facts = [" ".join(["Its quality cannot be judged yet.", *reasons])]
    # An agreement without an interval that rose is told first.
    gains = gain_sentences(RunEvaluation.read(values))
    if gains:
        facts.insert(0, " ".join(gains))
    assert part.facts[1:] == tuple(facts)


@pytest.mark.parametrize(("held_out", "documents"), [
    (23, "16 of 23 held-out documents"),
    (16, "16 held-out documents"),
    (None, "16 held-out documents"),
])  # fmt: skip
def test_the_note_on_an_agreement_says_how_its_counts_belong_together(held_out, documents):
    values = evaluation(sentences=300, documents=16)
    values["settings"] = {"held_out_documents": held_out}
    values["agreement"]["pairs"] = 1500
    assert f"on 1,500 pairs of 300 sentences from {documents}. It is" in comparison_markdown(values)


def test_a_figure_of_too_few_sentences_says_so_beside_it():
    assert cells(evaluation(sentences=51))["Agreement, far to near (Spearman)"].change == "too few sentences"
    assert cells(evaluation())["Agreement, far to near (Spearman)"].change == ""
    cut = {"width": 16, "agreement": evaluation(sentences=51)["agreement"]}
    assert [row.change for row in comparison_rows({"cut": [cut]})] == ["too few sentences"]


def test_cut_vectors_without_agreement_have_no_note_on_it():
    cut = {"width": 16, "student": retrieval(0.6, 500), "teacher": retrieval(0.8, 500)}
    [note] = (note for note in comparison_notes({"cut": [cut]}) if note.startswith("Components"))
    assert "agreement" not in note


def test_cut_vectors_of_a_text_that_tells_no_students_apart_have_no_share():
    values = evaluation(teacher=0.62)
    cut = {"width": 16, "teacher": retrieval(0.5, 500), "student": retrieval(0.49, 500)}
    values["cut"] = [cut | {"asymmetric": retrieval(0.48, 500)}]
    row = "Passage retrieval nDCG@10, 16 components"
    assert cells(values)[row].change.startswith("98.0 % kept")
    assert row in comparison_markdown(values, reliable_only=True)
    # Its vectors are not cut, so that its figure is compared with that of the teacher's whole ones.
    values["start"]["retrieval"]["mrr_at_10"] = 0.61
    changes = [row.change for row in comparison_rows(values)][-2:]
    assert [change.split(";")[0] for change in changes] == ["as good untrained"] * 2
    assert row not in comparison_markdown(values, reliable_only=True)
    # A start that is trained already has learned the retrieval.
    values["start"]["trained_model"] = "runs/first/student"
    assert cells(values)[row].change.startswith("98.0 % kept")


def test_a_search_by_titles_is_not_named_as_one_of_passages():
    values = evaluation()
    values["asymmetric"] = retrieval(0.65, 500)
    for figures in (values["teacher"]["retrieval"], values["student"]["retrieval"], values["asymmetric"]):
        figures["measure"] = SUMMARY_IN_BODIES
    names = {result.metric_name for result in held_out_results(RunEvaluation.read(values), "x")}
    assert "MRR@10 (finding a text by its title or first sentence)" in names
    assert "nDCG@10 (as above, with texts encoded by the teacher)" in names
    notes = comparison_notes(values)
    assert "In the teacher's documents: the student encodes the queries, and the teacher the texts." in notes
    assert not any("passage" in name for name in names)


@pytest.mark.parametrize(("ranges", "note"), [
    (None, "It is the mean of five correlations, one for each range"),
    (5, "It is the mean of five correlations, one for each range"),
    (4, "It is the mean of 4 correlations, one for each range of similarity with enough pairs; there are 5 ranges"),
    (1, "Only one range of similarity has enough pairs for a correlation."),
])  # fmt: skip
def test_the_note_on_an_agreement_has_the_number_of_its_ranges(ranges, note):
    values = evaluation()
    values["agreement"]["ranges"] = ranges
    (line,) = (line for line in comparison_notes(values) if line.startswith("Agreement:"))
    assert note in line


@pytest.mark.parametrize(("settings", "advice"), [
    ({}, ("hold out more text (corpus.held_out).", "hold out more text (corpus.held_out).")),
    ({"pairs": 1500, "retrieval_pairs": 700}, ("hold out more text (corpus.held_out).",) * 2),
    (
        {"pairs": 100, "retrieval_pairs": 120},
        ("set evaluation.pairs to 200 or more.", "set evaluation.retrieval_pairs to 200 or more."),
    ),
])  # fmt: skip
def test_the_advice_on_few_texts_names_the_key_that_limits_them(settings, advice):
    values = evaluation(sentences=100, pool=120) | {"settings": settings}
    lines = [line for line in comparison_notes(values) if "Fewer than 200" in line]
    assert len(lines) == 2 and all(line.endswith(end) for line, end in zip(lines, advice, strict=True))


def test_a_table_of_numbers_says_why_a_share_is_missing():
    values = {"teacher": {"retrieval": retrieval(0.8, 93)}, "student": {"retrieval": retrieval(0.6, 93)}}
    rows = {row["figure"]: row for row in DictReader(StringIO(comparison_csv(values, details=True)))}
    row = rows["Passage retrieval MRR@10"]
    assert (row["share, %"], row["note"]) == ("", "too few passages")


def test_a_speedup_that_contradicts_the_times_is_a_dash():
    batch = {"batch_size": 1, "rounds": 20, "speedup": 1.54}
    busy = batch | {"teacher": {"median_ms": 407.0}, "student": {"median_ms": 845.0}}
    values = {"latency": {"device": "cpu", "dtype": "float32", "length": 128, "batches": [busy]}}
    assert cells(values)["Latency batch 1, ms"][3] == "–; doubtful times"
    assert first_note(values) == "doubtful times"
    text = comparison_markdown(values)
    assert "faster" not in text and "limbeck benchmark model" in text
    idle = batch | {"teacher": {"median_ms": 154.0}, "student": {"median_ms": 100.0}}
    values["latency"]["batches"] = [idle]
    assert cells(values)["Latency batch 1, ms"][3] == "1.54x faster"


def test_a_speedup_that_the_shapes_cannot_give_is_a_dash():
    # Half the layers of one width, on a machine that slowed down the teacher in most rounds.
    busy = {"batch_size": 1, "rounds": 20, "speedup": 4.64, "transformer_speedup": 4.06, "shape_ratio": 2.0}
    busy |= {"teacher": {"median_ms": 621.1}, "student": {"median_ms": 136.6}}
    busy |= {"teacher_transformer": {"median_ms": 515.0}, "student_transformer": {"median_ms": 127.0}}
    values = {"latency": {"device": "cpu", "dtype": "float32", "length": 128, "batches": [busy]}}
    assert [row.speedup for row in comparison_rows(values)] == [None, None]
    assert "4.6" not in comparison_csv(values)
    assert "faster" not in comparison_markdown(values) and "the shapes of the models" in comparison_markdown(values)

    # Twelve layers to three, and a record without shapes: the speedup may be right.
    for shape_ratio in (4.0, None):
        busy["shape_ratio"] = shape_ratio
        assert [row.speedup for row in comparison_rows(values)] == [4.64, 4.06]


@pytest.mark.parametrize("doubtful", ["speedup", "transformer_speedup"])
def test_a_batch_with_one_doubtful_speedup_has_none(doubtful):
    # The note below the table names the batch size, not which of its two speedups is doubtful.
    batch = {"batch_size": 32, "rounds": 20, "speedup": 2.0, "transformer_speedup": 2.0}
    for model, milliseconds in (("teacher", 200.0), ("student", 100.0)):
        batch |= {model: {"median_ms": milliseconds}, f"{model}_transformer": {"median_ms": milliseconds}}
    values = {"latency": {"device": "cpu", "dtype": "float32", "length": 128, "batches": [batch]}}
    assert [row.speedup for row in comparison_rows(values)] == [2.0, 2.0]
    batch[doubtful] = 1.0
    assert [row.speedup for row in comparison_rows(values)] == [None, None]
    assert "at batch size 32" in comparison_markdown(values)


def test_on_a_busy_machine_no_speedup_is_clearly_above_that_of_the_shapes():
    # Half the layers of one width: the passes of a machine whose times spread widely say little.
    batch = {"batch_size": 1, "rounds": 20, "speedup": 2.38, "shape_ratio": 2.0}
    batch |= {"teacher": {"median_ms": 238.0, "p10_ms": 150.0, "p90_ms": 420.0}}
    batch |= {"student": {"median_ms": 100.0, "p10_ms": 95.0, "p90_ms": 110.0}}
    values = {"latency": {"device": "cpu", "dtype": "float32", "length": 128, "batches": [batch]}}
    assert [row.speedup for row in comparison_rows(values)] == [None]
    assert "faster" not in comparison_markdown(values)

    # The same speedup where the times are steady: small weights may fit into a faster memory.
    batch["teacher"] = {"median_ms": 238.0, "p10_ms": 230.0, "p90_ms": 250.0}
    assert [row.speedup for row in comparison_rows(values)] == [2.38]


# A machine is busy if times spread widely, and if more programs run than it has cores.
@pytest.mark.parametrize(
    ("p90", "of_machine"),
    [(142.0, {"demand": 1.0}), (142.0, {}), (100.0, {"demand": 1.3}), (100.0, {"load": 6.0})],
)
@pytest.mark.parametrize("speedup", [2.15, 1.95])
def test_a_speedup_of_a_busy_machine_is_within_the_shapes_and_marked(speedup, p90, of_machine):
    batch = {"batch_size": 32, "rounds": 10, "speedup": speedup, "shape_ratio": 2.0, **of_machine}
    batch |= {"teacher": {"median_ms": 100 * speedup, "p10_ms": 190.0, "p90_ms": 220.0}}
    batch |= {"student": {"median_ms": 100.0, "p10_ms": 90.0, "p90_ms": p90}}
    values = {"latency": {"device": "cpu", "dtype": "float32", "length": 128, "batches": [batch]}}
    expected = "1.95x faster; busy machine" if speedup < 2 else "–; busy machine"
    # The milliseconds are too long even where no speedup is given.
    assert first_note(values) == "busy machine"
    assert comparison_markdown(values).count("The machine was busy") == 1
    assert cells(values)["Latency batch 32, ms"][3] == expected
    assert "busy" in comparison_markdown(values) and "at batch size 32" in comparison_markdown(values)

    # The same measurement on an idle machine has no mark.
    batch["student"]["p90_ms"] = 100.0
    batch |= {"load": 1.0, "demand": 1.01}
    assert cells(values)["Latency batch 32, ms"][3] == f"{speedup}x faster"
    assert "busy" not in comparison_markdown(values)

    # In few rounds a short disturbance moves the median, without widely spread times.
    batch["rounds"] = 9
    expected = "1.95x faster" if speedup < 2 else "–; doubtful times"
    assert cells(values)["Latency batch 32, ms"][3] == expected
    assert ("the rounds were few, at batch size 32" in comparison_markdown(values)) == (speedup > 2)


@pytest.mark.parametrize(("metric", "rows", "teacher", "chance", "share"), [
    ("accuracy", 200, 0.7, 0.5, True),
    ("accuracy", 30, 0.6, 0.5, False),
    ("macro_f1", 200, 0.32, 0.333, False),
    ("macro_f1", 200, 0.7, 0.333, True),
    ("spearman", 100, 0.15, None, False),
    ("spearman", 100, 0.6, None, True),
])  # fmt: skip
def test_a_teacher_at_chance_is_no_measure(metric, rows, teacher, chance, share):
    scores = {"task": "t", "kind": "classification", "rows": rows, "teacher": {metric: teacher}}
    scores["student"] = {metric: teacher - 0.01}
    if chance is not None:
        scores["chance"] = {metric: chance}
    # The student is as good as its teacher, so that chance alone decides.
    scores["intervals"] = {metric: [teacher - 0.05, teacher + 0.05]}
    row, *_ = comparison_rows({"development": [scores]})
    assert ("kept" in row.change) == share
    assert ("not clearly above chance" in comparison_markdown({"development": [scores]})) != share


def test_tables_of_an_evaluation_give_no_share_of_a_model_at_chance():
    def scored(name, value, chance):
        column = {"mean": value, "runs": [value], "metrics": {"accuracy": {"mean": value, "runs": [value]}}}
        column |= {"interval": [value - 4, value + 4], "rows": 500, "chance": chance}
        return {"name": name, "columns": {"rte": column}, "retention": {"rte": 100 * value / 54} if value != 54 else {}}

    def kept(chance):
        columns = [{"key": "rte", "title": "RTE", "metric": "accuracy"}]
        models = [scored("teacher", 54, chance), scored("student", 80, chance)]
        evaluated = studies.Evaluation.read({"columns": columns, "models": models})
        _, student = evaluated.models
        in_csv = list(DictReader(StringIO(evaluation_csv(evaluated))))[1]["retention"]
        return share_kept("rte", student, evaluated.models[0]), in_csv

    assert kept(52.7) == (None, "")
    share, in_csv = kept(40)
    assert share == pytest.approx(148.1, abs=0.1)
    assert float(in_csv) == pytest.approx(share)


@pytest.mark.parametrize(("teacher", "interval", "share"), [
    (0.9, [0.7, 0.85], True),
    (0.9, None, False),
    (0.6, [0.7, 0.85], False),
    (0.35, [0.6, 0.68], False),
])  # fmt: skip
def test_a_share_needs_a_teacher_above_chance_and_an_interval(teacher, interval, share):
    scores = {"task": "t", "rows": 100, "teacher": {"accuracy": teacher}, "student": {"accuracy": 0.64}}
    scores |= {"labels": ["a", "b"], "confusion": [[40, 20], [16, 24]]}
    if interval is not None:
        scores["intervals"] = {"accuracy": interval}
    [row] = comparison_rows({"development": [scores]})
    assert ("kept" in row.change) == share


@pytest.mark.parametrize(("student", "change"), [
    (0.519, "95 %: 0.480 to 0.551"),
    (0.488, "100.0 % kept; score 0.480 to 0.551 (95 %)"),
    (0.449, "92.0 % kept; score 0.480 to 0.551 (95 %)"),
])  # fmt: skip
def test_a_student_that_is_better_than_its_teacher_keeps_no_share(student, change):
    scores = {"task": "t", "rows": 300, "teacher": {"f1": 0.488}, "student": {"f1": student}}
    scores["intervals"] = {"f1": [0.48, 0.551]}
    [row] = comparison_rows({"development": [scores]})
    assert row.change == change
    expected = student / 0.488 if student <= 0.488 else None
    assert Quality("F1", student, teacher=0.488).share == (None if expected is None else pytest.approx(expected))


def test_skipped_text_is_what_was_skipped():
    counts = {
        "line of invalid JSON": 3,
        "row cut to 64 tokens": 9,
        "line with bytes that are not UTF-8": 2,
        "row of SST-2 train (the published set has 67,349)": 1000,
        "row of MRPC train, of which 3,668 are published": 100,
        "file without blank lines, read as one document per line": 1,
        "held-out row that may resemble a training row": 4,
    }
    notes = SourceNotes.read({"counts": counts})
    assert list(skipped_text(notes)) == ["line of invalid JSON"]
    assert list(changed_text(notes)) == ["row cut to 64 tokens", "line with bytes that are not UTF-8"]
    assert len(taken_text(notes)) == 3


def test_languages_without_held_out_text_are_named():
    figures = [{"language": "de", "texts": 30}, {"language": "fr", "texts": 0}, {"language": "sw", "texts": 0}]
    (note,) = comparison_notes({"languages": figures})
    assert note.startswith("No held-out text, and so no figures, of the languages fr, sw: hold out more text")
    assert comparison_notes({"languages": figures[:1]}) == []


@pytest.mark.parametrize(("teacher", "line"), [
    (0.088, "The teacher's answer F1 is only 0.088, so no share of it is given. A student can only imitate"),
    (0.0, "The teacher's answer F1 is not clearly above chance (0.000"),
    (0.2, None),
])  # fmt: skip
def test_a_weak_teacher_is_a_warning_and_no_measure(teacher, line):
    scores = {"task": "qa", "kind": "question_answering", "rows": 156, "teacher": {"f1_answer": teacher}}
    scores |= {"student": {"f1_answer": 0.8 * teacher}, "intervals": {"f1_answer": [0.0, 0.3]}}
    table = comparison_markdown({"development": [scores]})
    # Notes stand in the card too, which has the reliable figures alone.
    assert comparison_markdown({"development": [scores]}, reliable_only=True) == table
    assert ("kept" in table) == (line is None)
    assert ("only imitate" in table) == (line is not None)
    if line is not None:
        assert line in table


GUESSED = {
    "task": "rank", "kind": "ranking", "split": "dev", "rows": 900, "queries": 90, "metric": "ndcg_at_10",
    "teacher": {"ndcg_at_10": 0.643, "mrr_at_10": 0.53}, "chance": {"ndcg_at_10": 0.584, "mrr_at_10": 0.45},
    "teacher_intervals": {"ndcg_at_10": [0.6, 0.69], "mrr_at_10": [0.48, 0.58]},
    "start": {"ndcg_at_10": 0.5, "mrr_at_10": 0.4},
}  # fmt: skip


@pytest.mark.parametrize(
    ("student", "interval", "is_guessed"),
    [(0.584, [0.56, 0.61], True), (0.6, [0.58, 0.62], True), (0.62, [0.6, 0.64], False)],
)
def test_a_student_that_is_no_better_than_a_guesser_has_no_share_and_a_warning(copied, student, interval, is_guessed):
    scores = GUESSED | {"student": {"ndcg_at_10": student, "mrr_at_10": 0.5}}
    scores |= {"intervals": {"ndcg_at_10": interval, "mrr_at_10": [0.47, 0.53]}}
    values = {"development": [scores], "start": {"summary": "Starts from layer 1."}}
    warning = (
        f"The student's nDCG@10 on rank, dev is not clearly above that of a random order: {student:.3f} against 0.584. "
        "So nothing shows that the student has learned the task."
    )
    assert (comparison_notes(values)[0] == warning) is is_guessed
    # Where the main score is guessed, no other one has a share either.
    assert ("kept" in comparison_markdown(values)) is not is_guessed
    folder = copied(edit={"evaluation": values})
    card = model_card({"name": "mine", "evaluation": values}, folder / "student")
    assert (f"- {warning}" in card[card.index("## Limits") :]) is is_guessed
    assert ("nDCG@10" in card[: card.index("# mine")]) is not is_guessed, "the results of the front matter"
    # A student of a weak teacher has the warning of its teacher alone.
    of_weak = values | {"development": [scores | {"teacher": {"ndcg_at_10": 0.15}, "teacher_intervals": {}}]}
    assert warning not in comparison_notes(of_weak)


@pytest.mark.parametrize(("student", "is_guessed"), [(0.55, True), (0.8, False)])
def test_a_student_that_guesses_on_held_out_rows_has_a_warning(student, is_guessed):
    task = {"task": "classification", "metric": "accuracy", "rows": 400, "teacher": 0.9, "student": student}
    notes = comparison_notes({"task": task | {"agreement": 0.6, "chance": {"accuracy": 0.52}}})
    warning = (
        "The student's accuracy on held-out rows is not clearly above that of the most frequent class: 0.550 against "
        "0.520. So nothing shows that the student has learned the task."
    )
    assert (warning in notes) is is_guessed


def test_a_weak_teacher_is_the_first_note_and_no_student_of_it_is_advised_to_train_more(copied):
    scores = {"task": "qa", "kind": "question_answering", "split": "validation", "rows": 156, "metric": "f1_answer"}
    scores |= {"student": {"f1_answer": 0.1}, "start": {"f1_answer": 0.11}, "intervals": {"f1_answer": [0.05, 0.15]}}
    notes = []
    for teacher in (0.12, 0.6):
        values = {"development": [scores | {"teacher": {"f1_answer": teacher}}]}
        notes.append(comparison_notes(values | {"start": {"summary": "Starts from layer 1."}}))
        folder = copied(name=f"run-{teacher}", edit={"evaluation": values})
        card = model_card({"name": "mine", "evaluation": values}, folder / "student")
        assert ("- The teacher's answer F1 is only" in card[card.index("## Limits") :]) == (teacher == 0.12)
    of_weak, of_good = notes
    assert of_weak[0].startswith("The teacher's answer F1 is only 0.120, so no share of it is given.")
    assert "did not improve the answer F1" in of_weak[1] and "Train more" not in " ".join(of_weak)
    assert "Train more steps, or on more text. Or keep a student without training" in of_good[0]


def test_a_weak_teacher_on_rows_held_out_from_training_files_is_a_warning():
    task = {"task": "token_classification", "metric": "f1_entity", "rows": 500, "student": 0.1, "agreement": 0.3}
    weak = comparison_markdown({"task": task | {"teacher": 0.19}})
    assert "The teacher's entity F1 is only 0.190. A student can only imitate its teacher" in weak
    assert "only imitate" not in comparison_markdown({"task": task | {"teacher": 0.6}})


@pytest.mark.parametrize(("teacher", "is_at_chance"), [(0.7, True), (0.73, True), (0.76, False)])
def test_a_teacher_at_chance_on_held_out_rows_is_told_in_place_of_the_student(teacher, is_at_chance):
    task = {"task": "classification", "metric": "accuracy", "rows": 500, "teacher": teacher, "student": 0.698}
    task |= {"agreement": 0.97, "start": {"accuracy": 0.69}, "chance": {"accuracy": 0.7}}
    notes = " ".join(comparison_notes({"task": task, "start": {"summary": "Starts from layer 1."}}))
    warning = "The teacher's accuracy is not clearly above chance (0.700, without reading the rows). A student can only"
    assert (warning in notes) is is_at_chance
    assert ("nothing shows that the student has learned" in notes) is not is_at_chance
    assert ("Train more steps" in notes) is not is_at_chance


def test_a_stage_is_named_only_where_there_is_one():
    task = {"task": "classification", "metric": "accuracy", "rows": 100, "student": 0.7, "only_answer": True}
    assert "every row of stage 'vectors' the same" in comparison_markdown({"task": task | {"stage": "vectors"}})
    assert "every held-out row the same answer" in comparison_markdown({"task": task})


def test_a_score_that_never_has_an_interval_is_no_reason_for_a_note_on_its_rise():
    task = {
        "task": "token_classification",
        "metric": "entity_f1",
        "rows": 4000,
        "student": 0.72,
        "start": {"entity_f1": 0.4},
    }
    assert "The training " not in comparison_markdown({"task": task, "start": {"summary": "Starts from layer 1."}})
    assert "may be chance" not in comparison_markdown({"task": task, "start": {"summary": "Starts from layer 1."}})
