"""Corpora of tasks, by name or by columns, with development rows; what cannot be is refused before training."""

import json
import shutil

import pytest

from limbeck.core.yaml import parse_yaml
from limbeck.corpus import build_labelled_corpus
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import LimbeckError
from limbeck.kinds.registry import KINDS
from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe import load_recipe, plan_run
from limbeck.recipe.known_by_content import without_places
from limbeck.recipe.load import dump_recipe
from tests.support.models import make_teacher
from tests.support.task_files import write_table, write_tasks


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with RTE and MRPC, and teachers with two classes, with three, and with one value."""
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder / "data")
    for name, count in (("two", 2), ("three", 3)):
        make_teacher(folder / name, head="classification", num_labels=count)
    make_teacher(folder / "value", head="regression", num_labels=1)
    header = ("index", "sentence1", "sentence2", "label")
    write_table(folder / "train.tsv", header, [(0, "the model", "it is on", 0), (1, "the text", "we are", 1)])
    for name in ("dev", "other-dev"):
        write_table(folder / f"{name}.tsv", header, [(0, "a text", "is it", 1)])
    write_table(folder / "other.tsv", ("sentence", "label"), [("the model", 0)])
    return folder


def named(folder, labels):
    """Give a teacher other names of its classes."""
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": dict(enumerate(labels))}))
    return folder


def plan(place, corpus, teacher="two/teacher-bert", method="output_distribution", *, classes=None, **more):
    given = {key: value.replace("$", str(place)) if isinstance(value, str) else value for key, value in corpus.items()}
    recipe = {
        "teacher": {"model": str(place / teacher), "classes": classes},
        "student": {"shape": "1x24"},
        "corpus": {"length": 16} | given,
        "stages": [{"method": method, "training": {"max_steps": 1}}],
    }
    return plan_run(load_recipe(recipe | more))


RTE = {"task": "rte", "data": "$/data"}
COLUMNS = {"task": {"kind": "classification", "pair_column": "sentence2"}, "text_column": "sentence1"}
OWN = COLUMNS | {"sources": "$/train.tsv"}


def scored_by(**keys):
    """A corpus of described rows with development rows, and keys of its task."""
    return OWN | {"development": "$/dev.tsv", "task": COLUMNS["task"] | keys}


def test_a_task_by_name_has_its_files_columns_classes_and_development_rows(place):
    found = plan(place, RTE)
    settings, development = found.stages[0].corpus, found.stages[0].development
    assert settings.sources == [str(place / "data/RTE/train.tsv")]
    assert (settings.task, settings.labels, settings.held_out) == ("classification", ("LABEL_0", "LABEL_1"), None)
    assert (development.split, development.title, len(development.load().splits["validation"])) == (
        *("validation", "validation"),
        12,
    )
    assert found.recipe.corpus.task.kind == "classification"
    said = found.summary()["classes of stage 1"]
    assert "have no names (LABEL_0, LABEL_1); taken in the task's order: " in said
    # What is written down reads back to the same, and is known by no place.
    text = dump_recipe(found.recipe)
    assert load_recipe(parse_yaml(text, "recipe.yaml")) == found.recipe
    assert str(place) not in str(without_places(parse_yaml(text, "recipe.yaml"))["corpus"])
    first, second = ({"corpus": {"task": {"name": f"{folder}/own.yaml", "kind": "regression"}}} for folder in "ab")
    assert without_places(first) == without_places(second), "a task's file is known by its rows"


def test_rows_of_a_task_by_name_are_encoded_with_both_of_their_texts(place, tmp_path):
    settings = plan(place, RTE).stages[0].corpus
    tokenizer = load_tokenizer(str(place / "two/teacher-bert"))
    built = build_labelled_corpus(settings, tokenizer, KINDS[settings.task], cache_dir=tmp_path, workers=1)
    wanted = [
        tokenizer(row.text, row.pair, truncation=True, max_length=16) for row in settings.rows.read(SourceReport())
    ]
    found = {tuple(row["input_ids"]): list(row["token_type_ids"]) for row in built.train}
    assert all(set(segments) == {0, 1} for segments in found.values())
    assert set(found) <= {tuple(row["input_ids"]) for row in wanted}


def test_classes_of_a_teacher_are_matched_by_name(place, tmp_path):
    teacher = shutil.copytree(place / "two/teacher-bert", tmp_path / "teacher-bert")
    named(teacher, ["Not-Entailment", "entailment"])  # RTE's other way round.
    rows = plan(place, RTE, teacher).stages[0].corpus.rows
    first = next(iter(rows.load().splits["train"]))
    assert next(iter(rows.read(SourceReport()))).label == 1 - first.label
    with pytest.raises(LimbeckError, match="rename the teacher's with teacher.classes"):
        plan(place, RTE, named(teacher, ["yes", "no"]))


def test_a_recipe_renames_the_classes_of_its_teacher(place):
    found = plan(place, RTE, classes={"LABEL_0": "not_entailment", "LABEL_1": "entailment"})
    assert found.stages[0].corpus.rows.classes == (1, 0), "RTE's order is the other one"
    assert found.student_config.id2label == {0: "not_entailment", 1: "entailment"}
    assert load_recipe(parse_yaml(dump_recipe(found.recipe), "recipe.yaml")) == found.recipe
    with pytest.raises(LimbeckError, match="has 'LABEL_2', which is not a class of that model"):
        plan(place, RTE, classes={"LABEL_2": "entailment"})
    with pytest.raises(LimbeckError, match="gives the name 'LABEL_1' to two classes"):
        plan(place, RTE, classes={"LABEL_0": "LABEL_1"})
    write_table(place / "words.tsv", ("sentence1", "sentence2", "label"), [("the model", "it is", "yes")])
    with pytest.raises(LimbeckError, match=r"or rename the classes \(teacher.classes: {LABEL_0: …}\)"):
        plan(place, OWN | {"sources": "$/words.tsv"})
    settings = plan(place, OWN | {"sources": "$/words.tsv"}, classes={"LABEL_1": "yes"}).stages[0].corpus
    assert settings.labels == ("LABEL_0", "yes")


def test_a_stage_that_reads_no_scores_takes_any_teacher(place):
    settings = plan(place, RTE, "three/teacher-bert", {"name": "mlkd_bert", "stage": 1}).stages[0].corpus
    assert settings.labels == ("entailment", "not_entailment")


HARD = {"name": "bert_pkd", "patient_weight": 0, "soft_label_share": 0.0}


@pytest.mark.parametrize("teacher", ["two", "three", "value"])
def test_where_labels_alone_are_learned_the_outputs_are_those_of_the_rows(place, teacher):
    found = plan(place, RTE, f"{teacher}/teacher-bert", HARD)
    assert found.student_config.id2label == {0: "entailment", 1: "not_entailment"}
    value = plan(place, OWN | {"task": {"kind": "regression"}, "text_column": "sentence1"}, method=HARD)
    assert value.student_config.num_labels == 1


def test_stages_that_train_one_head_number_its_classes_alike(place, tmp_path):
    def stages(*methods, **second):
        rows = [{"name": str(number), "method": method} for number, method in enumerate(methods)]
        return {"stages": [rows[0], rows[1] | second]}

    for name, labels in (("one", ["entailment", "not_entailment"]), ("other", ["not_entailment", "entailment"])):
        named(shutil.copytree(place / "two/teacher-bert", tmp_path / name), labels)
    turned = {"teacher": {"model": str(tmp_path / "other")}}
    first, second = plan(place, RTE, **stages(HARD, "output_distribution", **turned)).stages
    assert first.corpus.labels == second.corpus.labels == ("not_entailment", "entailment")
    twice = stages("output_distribution", "output_distribution", **turned)
    with pytest.raises(LimbeckError, match="Stage '0' trains the student's head for the classes entailment"):
        plan(place, RTE, tmp_path / "one", **twice)
    # A stage that trains no head may have the rows of another task.
    mrpc = {"task": "mrpc", "data": str(place / "data"), "length": 16}
    more = stages({"name": "mlkd_bert", "stage": 1}, "output_distribution")
    more["stages"][0]["corpus"] = mrpc
    found = plan(place, RTE, tmp_path / "one", **more).stages
    assert [stage.corpus.labels[0] for stage in found] == ["not_equivalent", "entailment"]


def test_a_column_that_a_development_file_lacks_is_named_with_its_setting(place):
    with pytest.raises(LimbeckError, match=r"dev\.tsv:2 has no column 'rating': set label_column to one of "):
        plan(place, scored_by(label_column="rating"))


def test_development_files_have_the_columns_of_the_rows_to_train_on(place):
    found = plan(place, OWN | {"development": "$/dev.tsv"}).stages[0].development
    data = found.load()
    assert [(row.text, row.pair, row.label) for row in data.splits["validation"]] == [("a text", "is it", 1)]
    assert (found.title, data.task.labels, data.task.scored) == ("dev.tsv", ("LABEL_0", "LABEL_1"), ("validation",))
    files = plan(place, RTE | {"development": "$/data/RTE/dev.tsv"}).stages[0].development
    assert [row.label for row in files.load().splits[files.split]] == [
        row.label for row in plan(place, RTE).stages[0].development.load().splits["validation"]
    ]


def test_fields_of_tables_without_a_header_are_named(place, tmp_path):
    for name, row in (("train", (0, "the model", "it is on", 1)), ("dev", (1, "a text", "is it", 0, "further"))):
        write_table(tmp_path / f"{name}.tsv", None, [row, row])
    columns = {"columns": ["index", "sentence1", "sentence2", "label"]}
    files = {"sources": str(tmp_path / "train.tsv"), "development": str(tmp_path / "dev.tsv")}
    stage = plan(place, OWN | files | {"task": OWN["task"] | columns}).stages[0]
    rows = stage.development.load().splits["validation"]
    assert [(row.text, row.pair, row.label) for row in rows] == [("a text", "is it", 0)] * 2
    assert stage.corpus.layout.header == tuple(columns["columns"])
    with pytest.raises(LimbeckError, match=r"name the fields by corpus\.task\.columns if the file has no header"):
        plan(place, OWN | {"sources": files["sources"]})
    with pytest.raises(LimbeckError, match="the task 'rte' already defines its columns: leave out columns"):
        plan(place, RTE | {"task": {"name": "rte", **columns}})


@pytest.mark.parametrize(
    ("splits", "more", "found"),
    [
        ("train test", {}, None),
        ("train test dev", {}, "dev"),
        ("train test", {"select": "test"}, "test"),
        ("train dev", {}, "dev"),
    ],
    ids=["a test split alone", "dev after test", "asked for", "dev alone"],
)
def test_a_test_split_is_no_development_set(place, tmp_path, splits, more, found):
    described = {"name": "own", "type": "pair", "labels": ["0", "1"], "files": {}} | more
    described["columns"] = {"text": "sentence1", "pair": "sentence2", "label": "label"}
    for split in splits.split():
        described["files"][split] = f"{split}.tsv"
        shutil.copy(place / "dev.tsv", tmp_path / f"{split}.tsv")
    (tmp_path / "own.yaml").write_text(json.dumps(described))
    own = {"task": str(tmp_path / "own.yaml")}
    corpus = plan(place, own).stages[0].corpus
    assert (corpus.development and corpus.development.split, corpus.held_out) == (found, None)
    files = plan(place, own | {"development": "$/other-dev.tsv"}).stages[0].development
    assert len(files.load().splits[files.split]) == 1


def test_a_share_in_place_of_the_development_rows(place):
    found = plan(place, RTE | {"held_out": 0.25}).stages[0]
    assert (found.development, found.corpus.held_out) == (None, 0.25)


def test_documents_have_new_keys_only_where_they_are_given(place):
    corpus = plan(place, OWN).recipe.model_dump()["corpus"]
    assert not {"data", "development"} & set(corpus)
    assert "name" not in corpus["task"]
    text = load_recipe({"teacher": {"model": "x"}, "student": {"shape": "1x24"}, "corpus": {"sources": "y"}})
    assert text.model_dump()["corpus"]["held_out"] == 0.01
    assert not {"tasks", "data"} & set(text.model_dump()["evaluation"])


@pytest.mark.parametrize(
    ("keys", "metrics", "positive"),
    [
        ({}, ("accuracy", "macro_f1", "matthews"), None),
        ({"positive": 1}, ("accuracy", "f1", "macro_f1", "matthews"), "LABEL_1"),
        ({"positive": "LABEL_0", "metric": "f1"}, ("f1",), "LABEL_0"),
        ({"metric": ["f1_weighted", "accuracy"]}, ("weighted_f1", "accuracy"), None),
    ],
)
def test_development_rows_are_scored_by_the_metrics_of_the_recipe(place, keys, metrics, positive):
    planned = plan(place, scored_by(**keys))
    task = planned.stages[0].development.task
    assert (task.metrics, task.positive) == (metrics, positive)
    # They decide no row: a corpus that is there is read again.
    usual = plan(place, scored_by())
    assert planned.stages[0].corpus.content() == usual.stages[0].corpus.content()


@pytest.mark.parametrize(
    ("line", "corpus", "teacher"),
    [
        ("Unknown task 'mrcp'. Did you mean 'mrpc'", {"task": "mrcp"}, "two"),
        ("nothing is trained on 'stsb_cosine'", {"task": "stsb_cosine"}, "two"),
        ("The data folder '$/nowhere' does not exist", {"task": "rte", "data": "$/nowhere"}, "two"),
        ("No file of the split 'train' of QNLI in '$/data'", {"task": "qnli", "data": "$/data"}, "two"),
        ("the task 'rte' already defines its sources", RTE | {"sources": "$/train.tsv"}, "two"),
        ("the task 'rte' already defines its text_column", RTE | {"text_column": "x"}, "two"),
        ("the task 'rte' already defines its columns: leave out label_column",
         RTE | {"task": {"name": "rte", "label_column": "x"}}, "two"),
        ("is now of the kind classification", RTE | {"task": {"name": "rte", "kind": "regression"}}, "value"),
        ("'data' is the folder with the files of a named task, but task.name is", OWN | {"data": "$/data"}, "two"),
        ("this corpus has no 'task'", {"sources": "$/train.tsv", "development": "$/dev.tsv"}, "two"),
        ("held_out 0.1 holds training rows out for want of a development set",
         OWN | {"development": "$/dev.tsv", "held_out": 0.1}, "two"),
        ("development: '$/train.tsv' has the same rows as the", OWN | {"development": "$/train.tsv"}, "two"),
        ("has the same rows as the training set", RTE | {"development": "$/data/RTE/train.tsv"}, "two"),
        ("'$/gone.tsv' does not exist", OWN | {"development": "$/gone.tsv"}, "two"),
        ("other.tsv:2 has no column 'sentence1'", OWN | {"sources": "$/other.tsv"}, "two"),
        ("other.tsv:2 has no column 'sentence1'", OWN | {"development": "$/other.tsv"}, "two"),
        ("task.metric and task.positive score development rows, but there are none: give 'development'",
         OWN | {"task": COLUMNS["task"] | {"metric": "macro_f1"}}, "two"),
        ("the task 'rte' already defines its metrics: leave out metric",
         RTE | {"task": {"name": "rte", "metric": "macro_f1"}}, "two"),
        ("metric: f1 is that of one class: name that class (positive: NAME)", scored_by(metric="f1"), "two"),
        ("corpus.task.positive is 'yes', which is not one of the classes. Known: LABEL_0, LABEL_1",
         scored_by(positive="yes"), "two"),
        ("positive is '2', which is not one of the classes", scored_by(positive=2), "two"),
        ("classification has no metric 'f2'. Known: accuracy, f1", scored_by(metric=["accuracy", "f2"]), "two"),
        ("positive does not apply to a task of the kind regression",
         {"sources": "$/train.tsv", "development": "$/dev.tsv", "text_column": "sentence1",
          "task": {"kind": "regression", "positive": 1}}, "value"),
        ("has 3 outputs (LABEL_0, LABEL_1, LABEL_2), but RTE has 2 classes", RTE, "three"),
        ("has 1 output, but classification needs 2", RTE, "value"),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(place, line, corpus, teacher):
    with pytest.raises(LimbeckError) as caught:
        plan(place, corpus, f"{teacher}/teacher-bert")
    assert line.replace("$", str(place)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tasks_of_the_evaluation_are_checked_when_the_recipe_is_read(place):
    assert plan(place, RTE, evaluation={"tasks": "rte, mrpc"}).recipe.evaluation.tasks == ["rte", "mrpc"]
    with pytest.raises(LimbeckError, match=r"evaluation\.tasks: Unknown task 'mrcp'"):
        plan(place, RTE, evaluation={"tasks": "mrcp"})


@pytest.mark.parametrize(
    ("tasks", "line", "more"),
    [
        ("rte,stsb", "evaluation.tasks: 'the student' has 2 outputs (LABEL_0, LABEL_1), but STS-B needs", {}),
        ("cola", "evaluation.tasks: No file of the split 'validation' of CoLA in '$/data'", {}),
        ("rte", "evaluation.data: The data folder '$/gone' does not exist", {"data": "$/gone"}),
        ("sick_cosine", "evaluation.tasks: SICK-R (cosine) compares sentence vectors, but evaluation.tasks", {}),
    ],
)  # fmt: skip
def test_tasks_that_a_run_could_not_score_at_its_end_are_refused_before(place, tasks, line, more):
    more = {key: value.replace("$", str(place)) for key, value in more.items()}
    with pytest.raises(LimbeckError) as caught:
        plan(place, RTE, evaluation={"tasks": tasks} | more)
    assert str(caught.value).startswith(line.replace("$", str(place))) and "\n" not in str(caught.value)


def test_keys_of_the_evaluation_that_nobody_reads_are_refused(place):
    text = {"task": None, "sources": "installed-docs"}
    with pytest.raises(LimbeckError, match="no stage trains a head for a task"):
        plan(place, text, method={"name": "minilmv2", "relation_heads": 4}, evaluation={"tasks": "rte"})
    with pytest.raises(LimbeckError, match="evaluation: 'data' is the folder with the files of evaluation.tasks"):
        plan(place, RTE, evaluation={"data": str(place)})


def test_classes_without_a_row_are_told(place, tmp_path):
    make_teacher(tmp_path / "three", head="classification", num_labels=3)
    teacher = tmp_path / "three/teacher-bert"
    found = plan(place, OWN, teacher, method=HARD)
    assert found.summary()["classes of stage 1"] == "no row has the class LABEL_2"
    assert "classes of stage 1" not in plan(place, OWN, method=HARD).summary()
