"""Runs beside each other, and the figure that one is judged by."""

import copy

import pytest

from limbeck.core.blocks import Cell, Figure, Table
from limbeck.core.records import RunEvaluation
from limbeck.report.collect import collect
from limbeck.report.gains import gain_sentences, has_clear_loss
from limbeck.report.quality import comparison_markdown
from limbeck.report.run import run_summary
from limbeck.report.run_quality import quality_of
from limbeck.report.runs_beside import run_blocks
from tests.golden.committed import FOLDERS
from tests.support.run_figures import evaluation


def titles_of_figures(folders):
    runs = [(run.title, run) for run in collect(folders)]
    return [block.title for block in run_blocks(runs) if isinstance(block, Figure)]


def test_runs_of_one_teacher_that_were_measured_on_different_text_have_no_common_figure(copied):
    folders = [copied(name=f"run{number}", edit={"evaluation": evaluation()}) for number in range(4)]
    assert "Quality of models" in titles_of_figures(folders)
    on_other_text = copied(name="other", edit={"evaluation": evaluation(teacher=0.7)})
    assert titles_of_figures([*folders, on_other_text]) == []


def notes_on(folders):
    runs = [(run.title, run) for run in collect(folders)]
    return [line for block in run_blocks(runs) for line in getattr(block, "lines", ())]


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, []),
        # The sentences of two seeds are drawn from the same text.
        ({"evaluation": evaluation(teacher=0.79) | {"settings": {"seed": 2}}}, []),
        ({"evaluation": evaluation(teacher=0.7)}, ["'Passage retrieval' … (the teacher's MRR@10: 0.800, 0.700)"]),
        ({"evaluation": evaluation(pool=2000)}, ["'Passage retrieval' … (texts that are searched: 500, 2,000)"]),
        ({"evaluation": evaluation(sentences=300)}, ["'Agreement, far to near' … (sentences: 900, 300)"]),
        ({"corpus.held_out_documents": 5}, ["'Agreement, far to near' … (held-out documents: 40, 5)"]),
        ({"corpus.sources": ["/texts/other.txt"]}, ["'Agreement, far to near' … (sources: text.txt, other.txt)"]),
    ],
)
def test_runs_that_were_measured_on_different_text_say_so_below_their_table(copied, changes, differences):
    values = {"corpus.sources": ["text.txt"], "corpus.held_out_documents": 40, "evaluation": evaluation()}
    folders = [copied(name="first", edit=values), copied(name="second", edit=values | changes)]
    found = [note for note in notes_on(folders) if "was not measured on the same text" in note]
    words = "was not measured on the same text in all of these runs"
    assert [note.replace(words, "…") for note in found] == [
        f"{difference}, so do not compare it between them." for difference in differences
    ]


def test_held_out_losses_beside_each_other_have_a_caution(copied):
    folders = [copied(name=name) for name in ("first", "second")]
    caution = "Losses are comparable only where terms, weights and text are the same."
    assert caution in notes_on(folders) and caution not in notes_on(folders[:1])


def test_tokens_of_an_assistant_are_not_those_of_the_student(copied, page_of):
    stage = {"method": "minilmv2", "steps": 10, "seconds": 300, "tokens": 1_000_000}
    assistant = {**stage, "name": "assistant", "seconds": 3600, "tokens": 9_000_000, "student": {"shape": "6x384"}}

    def add_assistant(record):
        record["recipe"]["stages"] = record["recipe"]["stages"][:1] * 2
        record["stages"] = [assistant, {**stage, "name": "last"}]

    [run] = collect([copied(edit=add_assistant)])
    [training] = [block for block in run_blocks([("a run", run)]) if getattr(block, "caption", "").startswith("Train")]
    assert str(training.rows[0][training.headings.index("Tokens")]) == "1,000,000"
    [part] = page_of(run.folder).parts
    [highlight] = [each for each in part.highlights if "training" in each.label and "teacher" not in each.label]
    assert (highlight.value, highlight.label) == ("65 min", "of training, with the assistants")
    assert highlight.detail == "1.00 M tokens read by the student"


@pytest.mark.parametrize(
    ("metric", "agreement_metric", "has_interval"),
    [("accuracy", None, True), ("accuracy", "f1", False), ("f1", "accuracy", True)],
)
def test_the_interval_of_an_agreement_is_that_of_its_own_metric(copied, metric, agreement_metric, has_interval):
    task = {"task": "classification", "metric": metric, "rows": 100, "agreement": 0.8}
    task["agreement_metric"] = agreement_metric
    [run] = collect([copied(edit={"evaluation": {"task": task}})])
    assert (quality_of(run).interval is not None) == has_interval


def test_held_out_rows_with_labels_are_judged_by_them_beside_the_teacher_and_the_guesser(copied, page_of):
    task = {"task": "classification", "metric": "accuracy", "rows": 400, "agreement": 0.93, "student": 0.8}
    task |= {"teacher": 0.9, "start": {"accuracy": 0.7}, "start_agreement": 0.6, "chance": {"accuracy": 0.52}}
    start = {"summary": "Starts from teacher layers 1, 3."}
    folder = copied(edit={"evaluation": {"task": task, "start": start}})
    page = page_of(folder)
    first, second = page.parts[0].highlights[:2]
    assert first.value == "0.800"
    assert first.label == "accuracy on held-out rows (the teacher may have been trained on them)"
    assert first.detail == (
        "95 %: 0.758 to 0.836, over 400 rows; the teacher has 0.900; an untrained start has 0.700; the most frequent "
        "class has 0.520"
    )
    # The teacher's score may be that of rows it knows, so that there is no share of it.
    assert "of the teacher's" not in second.label
    # In a table of several folders, the guesser stands where a share would.
    [run] = collect([folder])
    assert run_summary(run).result.endswith("an untrained start has 0.700; the most frequent class has 0.520")


def test_an_agreement_of_words_has_the_interval_of_its_record(copied):
    task = {"task": "token_classification", "metric": "f1_entity", "rows": 500, "agreement": 0.933, "student": 0.706}
    task |= {"start": {"f1_entity": 0.699}, "start_agreement": 0.924}
    task |= {"agreement_interval": [0.921, 0.944], "intervals": {"f1_entity": [0.688, 0.722]}}
    evaluation_of_run = {"task": task, "start": {"summary": "Starts from teacher layers 1, 3."}}
    [run] = collect([copied(edit={"evaluation": evaluation_of_run})])
    # The run is judged by the labels, and the agreement of its table has an interval of its own.
    assert quality_of(run).interval == (0.688, 0.722)
    text = comparison_markdown(evaluation_of_run)
    assert "| 0.933 | 95 %: 0.921 to 0.944 |" in text and "95 %: 0.688 to 0.722" in text
    assert (
        "The training changed little. The training did not clearly improve the entity F1 on held-out rows: 0.706 is "
        "not clearly above the untrained start's 0.699. The training did not clearly improve the agreement with the "
        "teacher on held-out rows: 0.933 is not clearly above the untrained start's 0.924."
    ) in text


def test_a_clear_loss_by_the_labels_is_told_whatever_the_agreement_gained():
    task = {"task": "classification", "metric": "accuracy", "rows": 400, "agreement": 0.93, "student": 0.55}
    task |= {"start": {"accuracy": 0.7}, "start_agreement": 0.6}
    evaluation_of_run = RunEvaluation.read({"task": task, "start": {"summary": "Starts from teacher layers 1, 3."}})
    loss, gained = gain_sentences(evaluation_of_run)
    assert loss == "The training made the accuracy on held-out rows worse: 0.550 is below the untrained start's 0.700."
    assert gained.startswith("The training improved the agreement with the teacher on held-out rows: 0.930")
    assert has_clear_loss(evaluation_of_run)


def test_rows_of_a_task_that_the_teacher_does_not_have_are_judged_by_their_labels_alone(copied):
    task = {"task": "classification", "metric": "accuracy", "rows": 400, "student": 0.8}
    places = {"first": ["a.csv"], "second": ["b.csv"]}
    edits = {name: {"evaluation": {"task": task}, "corpus.sources": sources} for name, sources in places.items()}
    runs = collect([copied(name=name, edit=edit) for name, edit in edits.items()])
    assert quality_of(runs[0]).label == "accuracy on held-out rows"
    on_same_rows = [(f"run {number}", runs[0]) for number in range(4)]
    assert any(isinstance(block, Figure) for block in run_blocks(on_same_rows))
    # Without a teacher's value, other files are other rows, which have no common axis.
    on_other_rows = [*on_same_rows, ("other", runs[1])]
    assert not any(isinstance(block, Figure) for block in run_blocks(on_other_rows))


def test_runs_that_share_no_figure_have_tables_of_their_own(copied):
    task = {"task": "classification", "metric": "accuracy", "rows": 100, "agreement": 0.8, "student": 0.7}
    of_rows = {"task": task}
    values = [evaluation(), of_rows, evaluation(), of_rows]
    folders = [copied(name=f"run{number}", edit={"evaluation": each}) for number, each in enumerate(values)]
    runs = [(f"run {number}", run) for number, run in enumerate(collect(folders))]
    tables = [block for block in run_blocks(runs) if isinstance(block, Table) and block.caption.startswith("Quality")]
    assert [table.caption for table in tables] == [
        "Quality of the students: run 0, run 2",
        "Quality of the students: run 1, run 3",
    ]
    assert [[row[0] for row in table.rows] for table in tables] == [["run 0", "run 2"], ["run 1", "run 3"]]
    assert not set(tables[0].headings[1:]) & set(tables[1].headings[1:])


def test_students_without_a_figure_are_not_counted_as_further_ones(copied, page_of):
    def add_students(record):
        block = record["summary"]["blocks"][0]
        without_figure = copy.deepcopy(block)
        for row in without_figure["rows"]:
            row["main"] = None
        record["summary"]["blocks"] = [block] * 5 + [without_figure] * 2

    [part] = page_of(copied("comparison-with-costs", edit=add_students)).parts
    assert "1 more student in the tables." in part.facts


@pytest.mark.parametrize(("student", "has_share"), [(0.838, False), (0.79, True)])
def test_a_score_without_a_share_stands_beside_its_teachers(copied, student, has_share):
    scores = {"task": "mrpc", "kind": "classification", "split": "validation", "rows": 500}
    scores |= {"student": {"accuracy": student}, "intervals": {"accuracy": [student - 0.035, student + 0.03]}}
    scores |= {"teacher": {"accuracy": 0.824}, "teacher_intervals": {"accuracy": [0.81, 0.83]}}
    scores |= {"chance": {"accuracy": 0.572}}
    [run] = collect([copied(edit={"evaluation": {"development": [scores]}})])
    quality = [block for block in run_blocks([("a run", run)]) if isinstance(block, Table)][-1]
    [detail] = [cell.detail for cell in quality.rows[0] if isinstance(cell, Cell)]
    assert (" kept" in detail, "teacher 0.824" in detail) == (has_share, not has_share)


def test_runs_beside_each_other_show_their_untrained_starts(copied):
    [run] = collect([copied(edit={"evaluation": evaluation()})])
    tables = [block for block in run_blocks([("a run", run)]) if isinstance(block, Table)]
    [quality] = [table for table in tables if table.caption == "Quality of the students"]
    [row] = quality.rows
    details = dict(zip(quality.headings, (getattr(cell, "detail", "") for cell in row), strict=True))
    assert details["Passage retrieval MRR@10"].endswith("; untrained start 0.400 (50.0 % kept)")
    assert details["Agreement, far to near (Spearman)"].endswith("untrained start 0.300")
    assert "an untrained start has 0.400" in run_summary(run).result


def test_a_start_that_is_trained_already_has_another_name_everywhere(copied, page_of):
    values = evaluation()
    values["start"] |= {"trained_model": "runs/first/student", "summary": "Starts from the model 'runs/first/student'."}
    # It is within the interval of the teacher, which says nothing against the retrieval: the start has learned it.
    values["start"]["retrieval"]["mrr_at_10"] = 0.79
    [run] = collect([copied(edit={"evaluation": values})])
    tables = [block for block in run_blocks([("a run", run)]) if isinstance(block, Table)]
    [quality] = [table for table in tables if table.caption == "Quality of the students"]
    [row] = quality.rows
    details = dict(zip(quality.headings, (getattr(cell, "detail", "") for cell in row), strict=True))
    assert details["Passage retrieval MRR@10"].endswith("; trained start 0.790 (98.8 % kept)")
    assert "; the trained start has 0.790" in run_summary(run).result

    [part] = page_of(run.folder).parts
    figure, share = part.highlights[:2]
    assert figure.detail.endswith("; the trained start has 0.790")
    assert share.label == "of the teacher's MRR@10, 98.8 % before this training"
    text = comparison_markdown(values)
    assert "made the retrieval MRR@10 worse: 0.600 is below the trained start's 0.790." in text
    assert "or keep the trained start." in text
    assert "untrained" not in text.lower()


def words_on_recipe(part):
    """The sentence above the recipe on the page of a run."""
    [section] = [section for section in part.sections if section.title == "Recipe"]
    return section.blocks[0].text


def test_a_run_that_was_ended_early_is_told_apart_from_whole_ones(copied, page_of):
    early_end = {"stage": "vectors", "step": 30, "planned_steps": 60}
    folders = [copied(name="whole"), copied(name="early", edit={"ended_early": early_end})]
    compared, whole, early = page_of(*folders).parts
    table = compared.sections[0].blocks[0]
    statuses = [row[table.headings.index("Status")] for row in table.rows]
    shown = "finished, ended early at step 30 of 60 of stage 'vectors'"
    assert statuses == ["finished", shown]
    assert whole.subtitle.endswith("; finished") and early.subtitle.endswith(f"; {shown}")
    # Its recipe has all steps, so that it does not repeat the run.
    assert words_on_recipe(whole).endswith("`limbeck distill recipe.yaml --output runs/again` repeats the run.")
    assert words_on_recipe(early).endswith("trains a student to the last step, which this run did not reach.")


def test_a_run_without_a_figure_says_why_in_its_cell_and_below_the_plots(copied, page_of):
    folders = [copied(name=f"run{number}", edit={"evaluation": evaluation()}) for number in range(4)]
    folders.append(copied(name="few", edit={"evaluation": evaluation(pool=93, sentences=100)}))
    folders.append(copied(name="none", edit=lambda record: record.update(evaluation={})))

    compared, *_ = page_of(*folders).parts
    results = [str(row[1]) for row in compared.sections[0].blocks[0].rows]
    reason = "quality cannot be judged: too few passages, too few sentences"
    assert results[-2:] == [reason, "quality was not measured"]
    figures = {figure.title: figure for figure in compared.sections[1].blocks if isinstance(figure, Figure)}
    assert f"Left out: few ({reason}); none (quality was not measured)." in figures["Quality of models"].caption


def test_the_plot_against_latency_names_the_runs_without_a_speedup(copied):
    def run(name, speedup, rounds=9):
        batch = {"batch_size": 1, "rounds": rounds, "speedup": speedup}
        batch |= {"teacher": {"median_ms": 20 * speedup}, "student": {"median_ms": 20.0}}
        latency = {"device": "cpu", "dtype": "float32", "length": 128, "batches": [batch]}
        return copied(name=name, edit={"evaluation": evaluation() | {"latency": latency}})

    folders = [run("half", 2.0), run("third", 3.0), run("hasty", 2.0, rounds=2)]
    titled_runs = [(folder.folder.name, folder) for folder in collect(folders)]
    [figure] = [block for block in run_blocks(titled_runs) if getattr(block, "title", "") == "Quality against latency"]
    assert "Left out: hasty (it has no reliable speedup)." in figure.caption


@pytest.mark.parametrize("slowest_ms", [30.0, 31.0])
def test_a_speedup_of_a_busy_machine_has_a_word_beside_it(copied, page_of, slowest_ms):
    """On a page of one run, where it is set large, and in the first columns of several."""
    batch = {"batch_size": 1, "rounds": 9, "speedup": 2.0}
    batch |= {"teacher": {"median_ms": 22.0, "p10_ms": 20.0, "p90_ms": slowest_ms}, "student": {"median_ms": 11.0}}
    latency = {"device": "cpu", "dtype": "float32", "length": 128, "batches": [batch]}
    run = copied(edit={"evaluation": evaluation() | {"latency": latency}})
    is_busy = slowest_ms > 1.5 * 20

    [part] = page_of(run).parts
    [speedup] = [highlight for highlight in part.highlights if highlight.label == "as fast as the teacher"]
    assert speedup.detail == "at batch size 1" + ("; the machine was busy" if is_busy else "")

    compared, *_ = page_of(run, FOLDERS["finished"]).parts
    table = compared.sections[0].blocks[0]
    assert table.headings[:4] == ("", "Result", "As fast as its teacher", "Parameters")
    cell = table.rows[0][2]
    assert (cell.main, cell.detail) == ("2.0x", "busy machine" if is_busy else "")

    # The table of speeds below it, of each batch size, has the mark too.
    [run_folder] = collect([run])
    tables = [block for block in run_blocks([("a run", run_folder)]) if isinstance(block, Table)]
    [speeds] = [table for table in tables if table.caption == "Size and speed, compared with the teacher"]
    assert ("busy machine" in str(speeds.rows[0])) == is_busy


def test_a_run_without_an_evaluation_has_its_parameters(copied, page_of):
    run = copied(edit=lambda record: record.update(evaluation={}))
    compared, *_ = page_of(run, FOLDERS["finished"]).parts
    table = compared.sections[0].blocks[0]
    column = table.headings.index("Parameters")
    assert [str(row[column]) for row in table.rows] == ["988", "988"]


def test_times_of_a_column_have_one_unit(copied):
    seconds_of_run = {"short": 112.0, "long": 1200.0, "middle": 123.0}
    folders = [copied(name=name, edit={"timings": {"total": seconds}}) for name, seconds in seconds_of_run.items()]
    tables = [block for block in run_blocks([(run.title, run) for run in collect(folders)]) if isinstance(block, Table)]
    [training] = [table for table in tables if table.caption == "Training of the runs"]
    column = training.headings.index("Total time")
    assert [str(row[column]) for row in training.rows] == ["1.9 min", "20 min", "2.0 min"]
