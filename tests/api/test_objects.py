"""Objects in the places of names: what each is kept as, what the recipe says of it, and what is refused."""

import json
import shutil
from pathlib import Path

import datasets
import pandas
import pyarrow.parquet as pq
import pytest
import yaml
from transformers import AutoModel, AutoTokenizer, TrainerCallback, TrainingArguments, pipeline

import limbeck
from limbeck.api.kept_files import _RowLines
from limbeck.api.objects import Objects
from limbeck.api.training_objects import training_of
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_source
from limbeck.errors import ModelError, OutputError, RecipeError
from tests.support.models import make_embedding, make_teacher

SMALL = {"max_steps": 2, "per_device_train_batch_size": 4, "bf16": False}
QUIET = {"enabled": False}
TEXTS = [f"The model number {number} is a text of words that we read." for number in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("teacher"), head="masked_lm")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("classifier"), head="classification", num_labels=2)


@pytest.fixture
def model(folder):
    return AutoModel.from_pretrained(folder, add_pooling_layer=False)


class Counts(TrainerCallback):
    """Counts the steps of all stages."""

    def __init__(self):
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1


def texts_in(source):
    return [document.text for document in open_source(source).documents(SourceReport())]


def recipe_of(result):
    return yaml.safe_load((result.folder / "recipe.yaml").read_text())


def test_a_model_texts_and_a_callback_make_a_student_that_its_recipe_makes_again(model, tmp_path):
    counts = Counts()
    result = limbeck.distill(
        evaluation=QUIET,
        teacher=model,
        student=1,
        corpus=TEXTS,
        training=SMALL,
        callbacks=counts,
        output=tmp_path / "run",
    )
    assert counts.steps == 2
    recipe = recipe_of(result)
    teacher, [texts] = recipe["teacher"]["model"], recipe["corpus"]["sources"]
    assert AutoModel.from_pretrained(teacher).config.num_hidden_layers == model.config.num_hidden_layers
    assert texts_in(texts) == TEXTS
    reasons = recipe["reasons"]
    assert teacher in reasons["teacher.model"] and texts in reasons["corpus.sources"]
    assert reasons["callbacks"].startswith("Counts (hash of its source ")
    assert {path.name for path in (tmp_path / "run/inputs").iterdir()} == {teacher.split("/")[-1], texts.split("/")[-1]}
    again = limbeck.distill(recipe, ["reasons=null"], output=tmp_path / "again")
    weights = [(each.student / "model.safetensors").read_bytes() for each in (result, again)]
    assert weights[0] == weights[1], "the recipe is the whole run"


def test_a_run_goes_on_with_the_same_objects_and_not_with_others(model, tmp_path):
    asked = {"student": 1, "corpus": TEXTS, "training": SMALL, "output": tmp_path / "run"}
    limbeck.distill(evaluation=QUIET, teacher=model, **asked)
    with pytest.raises(OutputError, match="is not empty"):
        limbeck.distill(evaluation=QUIET, teacher=model, **asked)
    assert limbeck.distill(evaluation=QUIET, teacher=model, resume=True, **asked).record["status"] == "finished"
    with pytest.raises(OutputError, match="corpus.sources.0 is not the object that the run in '.*' began with. Cont"):
        limbeck.distill(evaluation=QUIET, teacher=model, resume=True, **asked | {"corpus": TEXTS[1:]})
    weights = model.get_input_embeddings().weight
    weights.data += 1
    drawn = "teacher.model is not the object .* 1 of its 69 tensors differ .embeddings.word_embeddings.weight.. Loading"
    with pytest.raises(OutputError, match=drawn):
        limbeck.distill(evaluation=QUIET, teacher=model, resume=True, **asked)
    kept = [path.name for path in (tmp_path / "run/inputs").iterdir()]
    assert len(kept) == 2, "what was refused is not kept"
    assert limbeck.distill(output=tmp_path / "run", resume=True).record["status"] == "finished"
    limbeck.distill(evaluation=QUIET, teacher=model, overwrite=True, **asked)
    kept = [path.name for path in (tmp_path / "run/inputs").iterdir() if path.is_dir()]
    assert len(kept) == 1, "the model that nothing names any more is removed with its run"


def test_nothing_is_kept_in_a_folder_that_a_run_may_not_have(model, tmp_path):
    (tmp_path / "mine.txt").write_text("not a run")
    with pytest.raises(OutputError, match="is not empty; choose another folder"):
        limbeck.distill(teacher=model, student=1, corpus=TEXTS, output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_nothing_is_kept_in_a_folder_of_something_else(model, tmp_path):
    (tmp_path / "mine.txt").write_text("something else")
    plan = {"name": "two", "teacher": model, "students": [1], "corpus": TEXTS, "methods": ["minilmv2"]}
    with pytest.raises(OutputError, match="holds no comparison; choose an empty or new folder"):
        limbeck.compare(plan | {"budget": {"tokens": 1000}}, output=tmp_path)
    with pytest.raises(OutputError, match="holds no evaluation; choose an empty or new folder"):
        limbeck.evaluate(model, "rte", data=tmp_path, output=tmp_path)
    with pytest.raises(OutputError, match="holds no evaluation; choose an empty or new folder"):
        limbeck.finetune(model, "rte", data=tmp_path, output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_models_of_every_kind_have_a_name(folder, model, tmp_path):
    objects = Objects(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kept = objects.model(model)
    assert objects.model((model, tokenizer)) == kept == objects.model(model, tokenizer=folder), "by their content"
    assert kept.startswith(str(tmp_path / "inputs/BertModel-"))
    assert objects.model(folder) == str(folder) and objects.model("package:x") == "package:x"
    filled = pipeline("fill-mask", model=str(folder), tokenizer=str(folder))
    assert "BertForMaskedLM" in objects.model(filled)
    for strange in (3, object(), [model, tokenizer, 3]):
        with pytest.raises(RecipeError, match="is neither the name of a model nor a model of transformers"):
            objects.model(strange)
    model.name_or_path = "nowhere/at-all"
    with pytest.raises(RecipeError, match="teacher: the model object has no tokenizer, .* give tokenizer="):
        objects.model(model, "teacher")


def test_a_sentence_transformer_teaches_its_vectors(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    teacher = sentence_transformers.SentenceTransformer(str(make_embedding(tmp_path)), device="cpu")
    result = limbeck.distill(
        evaluation=QUIET, teacher=teacher, student=2, corpus=TEXTS, training=SMALL, output=tmp_path / "run"
    )
    assert recipe_of(result)["stages"][0]["method"]["name"] == "sentence_embedding"
    student = sentence_transformers.SentenceTransformer(str(result.student), device="cpu")
    assert student.encode(["a text"]).shape == (1, 48)


def test_a_student_may_be_a_model_to_start_from(folder, tmp_path):
    start = limbeck.distill(
        evaluation=QUIET, teacher=folder, student=1, corpus=TEXTS, training=SMALL, output=tmp_path / "start"
    )
    further = limbeck.distill(
        evaluation=QUIET, teacher=folder, student=AutoModel.from_pretrained(start.student), corpus=TEXTS,
        training=SMALL | {"learning_rate": 1e-30}, output=tmp_path / "further",
    )  # fmt: skip
    recipe = recipe_of(further)
    assert recipe["student"]["shape"]["layers"] == 1 and "student" in recipe["reasons"]
    before = AutoModel.from_pretrained(start.student).state_dict()
    after = AutoModel.from_pretrained(further.student).state_dict()
    assert all(after[name].equal(before[name]) for name in after if not name.startswith("pooler"))


ROWS = [{"sentence": f"the model {number}", "label": number % 2} for number in range(40)]


@pytest.mark.parametrize("kind", ["dicts", "dataset", "splits", "pandas", "generator"])
def test_labelled_rows_come_from_any_table(classifier, tmp_path, kind):
    tables = {
        "dicts": ROWS,
        "dataset": datasets.Dataset.from_list(ROWS),
        "splits": datasets.DatasetDict(
            {"train": datasets.Dataset.from_list(ROWS), "validation": datasets.Dataset.from_list(ROWS[:10])}
        ),
        "pandas": pandas.DataFrame(ROWS),
        "generator": (row for row in ROWS),
    }
    result = limbeck.distill(
        evaluation={"speed": False}, teacher=classifier, student=1, corpus=tables[kind], training=SMALL,
        output=tmp_path / "run",
        **({} if kind == "splits" else {"development": datasets.Dataset.from_list(ROWS[:10])}),
    )  # fmt: skip
    corpus = recipe_of(result)["corpus"]
    assert (corpus["text_column"], corpus["task"]["label_column"]) == ("sentence", "label")
    assert result.record["corpus"]["documents"] == 40 and len(corpus["development"]) == 1
    assert result.record["corpus"]["held_out_documents"] == 10, "the development rows, which nothing is trained on"
    assert "Accuracy on development rows " in str(result), "no name of a file that nobody gave"


NAMES = {
    "label": datasets.ClassLabel(names=["second", "first"]),
    "tags": datasets.Sequence(datasets.ClassLabel(names=["B-LOC", "O"])),
}


def with_names():
    """Rows of a data set whose class numbers have names."""
    rows = datasets.Dataset.from_list([{"text": f"text {n}", "label": n % 2, "tags": [n % 2]} for n in range(6)])
    return rows.cast(datasets.Features(rows.features | NAMES))


@pytest.mark.parametrize("kind", ["dataset", "indexed", "stream", "splits"])
def test_names_of_class_numbers_are_kept(tmp_path, kind):
    rows = with_names()
    given = {
        "dataset": rows,
        "indexed": rows.shuffle(seed=0),
        "stream": rows.to_iterable_dataset(),
        "splits": datasets.DatasetDict({"train": rows}),
    }
    corpus = Objects(tmp_path).corpus(given[kind])
    kept = datasets.Dataset.from_parquet(corpus["sources"][0], cache_dir=str(tmp_path / "read"))
    assert kept.features["label"].names == ["second", "first"]
    assert kept.features["tags"].feature.names == ["B-LOC", "O"]
    assert sorted(kept["text"]) == sorted(rows["text"])


def test_a_data_set_with_other_class_names_is_another_file_and_unnamed_numbers_have_the_file_they_had(tmp_path):
    objects = Objects(tmp_path)
    rows = with_names()
    swapped = rows.cast_column("label", datasets.ClassLabel(names=["first", "second"]))
    assert objects.sources(rows) == objects.sources(with_names()) != objects.sources(swapped)
    plain = datasets.Dataset.from_list(ROWS)
    [file] = objects.sources(plain)
    assert pq.read_schema(file).metadata is None or b"huggingface" not in pq.read_schema(file).metadata


def test_a_data_set_is_labelled_by_the_names_of_its_classes(classifier, tmp_path):
    named_classifier = shutil.copytree(classifier, tmp_path / "classifier")
    config = json.loads((named_classifier / "config.json").read_text())
    config |= {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"neg": 0, "pos": 1}}
    (named_classifier / "config.json").write_text(json.dumps(config))
    rows = datasets.Dataset.from_list(ROWS)
    scores = []
    for number, label_names in enumerate((["neg", "pos"], ["pos", "neg"])):
        labels = [row["label"] if number == 0 else 1 - row["label"] for row in ROWS]
        named = rows.remove_columns("label").add_column("label", labels)
        named = named.cast_column("label", datasets.ClassLabel(names=label_names))
        result = limbeck.distill(
            evaluation={"speed": False}, teacher=named_classifier, student=1, corpus=named,
            development=named.select(range(10)), training=SMALL, output=tmp_path / f"run{number}",
        )  # fmt: skip
        scores.append(result.run.evaluation.development[0].teacher)
    assert scores[0] == scores[1], "the same classes under other numbers"
    unknown = rows.cast_column("label", datasets.ClassLabel(names=["nobody", "knows"]))
    with pytest.raises(limbeck.LimbeckError, match="nobody"):
        limbeck.distill(
            teacher=named_classifier, student=1, corpus=unknown, training=SMALL, output=tmp_path / "refused"
        )


def test_texts_are_told_from_names_of_sources(tmp_path):
    (tmp_path / "two words").mkdir()
    file = tmp_path / "a b.txt"
    objects = Objects(tmp_path)
    named = [[str(tmp_path / "two words"), str(file)], ["installed-docs"], ["hub:a/b", "missing.txt"], ["a", "b"]]
    assert [objects.sources(each) for each in named] == named
    item = objects.sources(["How do you do?", "Word", "A third text."])
    assert len(item) == 1 and len(Path(item[0]).read_text().splitlines()) == 3
    assert objects.sources(["How do you do?", "Word", "A third text."]) == item, "the same texts are the same file"
    mixed = objects.sources(
        [str(file), ["Texts of their own.", "And one more."], {"source": str(file), "role": "query"}]
    )
    assert mixed[0] == str(file) and mixed[1].endswith(".jsonl") and mixed[2] == {"source": str(file), "role": "query"}
    column = datasets.Dataset.from_dict({"body": ["A text.", "Another text."]})
    assert [document.text for document in open_source(objects.sources(column)[0]).documents(SourceReport())] == column[
        "body"
    ][:]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "corpus.sources: int is not text"),
        ([], "'corpus' is empty"),
        (["A first text.", "A second text.", 3], "item 3 is of the type int among text"),
        ([{"text": "a"}, "b c", "d e"], "corpus.sources"),
        (iter(()), "corpus.sources is empty"),
        ([{"text": object()}], "row 1 cannot be written"),
        (datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}), "has the splits test, but no 'train'"),
        (datasets.Dataset.from_list([{"a": 1, "text": "b"}]).select([]), "has no rows"),
    ],
    ids=["number", "empty", "mixed", "mixed rows", "nothing", "object", "splits", "no rows"],
)
def test_what_is_no_text_is_refused_in_a_line(folder, tmp_path, given, said):
    with pytest.raises(limbeck.errors.LimbeckError, match=said) as raised:
        limbeck.distill(teacher=folder, student=1, corpus=given, output=tmp_path / "run")
    assert "\n" not in str(raised.value)


def test_training_arguments_give_what_differs_from_their_defaults(folder, tmp_path):
    value = TrainingArguments(
        output_dir=tmp_path / "not-this", max_steps=2, per_device_train_batch_size=4, lr_scheduler_type="cosine",
        save_strategy="no", learning_rate=1e-4,
    )  # fmt: skip
    assert training_of(value) == {
        "max_steps": 2, "per_device_train_batch_size": 4, "lr_scheduler_type": "cosine", "save_strategy": "no",
        "learning_rate": 1e-4,
    }  # fmt: skip
    result = limbeck.distill(
        evaluation=QUIET, teacher=folder, student=1, corpus=TEXTS, training=value, output=tmp_path / "r"
    )
    written = recipe_of(result)["stages"][0]["training"]
    assert training_of(value).items() <= written.items() and not (tmp_path / "not-this").exists()
    assert result.record["stages"][0]["steps"] == 2
    with pytest.raises(RecipeError, match="evaluation is false; give a mapping"):
        limbeck.distill(teacher=folder, student=1, corpus=TEXTS, evaluation=False, output=tmp_path / "s")
    with pytest.raises(RecipeError, match="training: list cannot hold training arguments"):
        limbeck.distill(teacher=folder, student=1, corpus=TEXTS, training=[3], output=tmp_path / "s")


def test_a_recipe_has_objects_in_the_places_of_names(model, tmp_path):
    recipe = {
        "output": tmp_path / "run",
        "teacher": {"model": model, "name": "mine"},
        "student": 1,
        "corpus": TEXTS,
        "stages": [{"method": "minilmv2", "training": SMALL}],
        "evaluation": {"enabled": False},
    }
    result = limbeck.distill(recipe, "seed=7", seed=8, evaluation={"speed": False})
    written = recipe_of(result)
    assert written["teacher"]["name"] == "mine" and written["seed"] == 7, "overrides win"
    assert not written["evaluation"]["enabled"] and not written["evaluation"]["speed"], "laid over the recipe's"
    assert str(result) == f"Student: {result.student}"
    assert str(tmp_path / "run/inputs") in written["teacher"]["model"]
    plan = limbeck.validate(recipe | {"corpus": [str(tmp_path)]}, "seed=7")
    assert plan.recipe.seed == 7 and len(str(plan).splitlines()) < 8


def test_callbacks_and_methods_that_are_none_are_refused(folder, tmp_path):
    asked = {"teacher": folder, "student": 1, "corpus": TEXTS, "output": tmp_path}
    with pytest.raises(RecipeError, match="callbacks: function is not a callback; derive it from"):
        limbeck.distill(callbacks=[lambda: 0], **asked)
    with pytest.raises(RecipeError, match="method: 'make_teacher' is not a registered method"):
        limbeck.distill(method=make_teacher, **asked)


def test_a_path_of_a_model_is_a_student_whether_it_is_text_or_a_path(tmp_path, monkeypatch):
    folder = make_teacher(tmp_path, layers=2, hidden=32, heads=4, ffn=64)
    wanted = {"shape": {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64}, "initialise": {"checkpoint": str(folder)}}
    objects = Objects(tmp_path / "out")
    assert objects.student(folder) == objects.student(str(folder)) == wanted
    monkeypatch.setenv("HOME", str(tmp_path))
    assert objects.student(f"~/{folder.name}")["shape"] == wanted["shape"]
    # Shapes and names of presets are no paths.
    for shape in ("6x384", "minilm-6x384", 3, None):
        assert objects.student(shape) == shape


def test_half_of_a_character_in_python_rows_is_replaced_and_counted(tmp_path):
    rows = [
        {"text": "half \ud83d", "label": "a"},
        {"text": "\ud83d\ude00 whole", "label": "b"},
        {"text": "é", "label": "a"},
    ]
    kept = b"".join(_RowLines(rows, "corpus"))
    assert "é".encode() in kept
    (tmp_path / "kept.jsonl").write_bytes(kept)
    report = SourceReport()
    assert [row.values["text"] for row in read_rows(tmp_path / "kept.jsonl", report)] == [
        "half \ufffd",
        "😀 whole",
        "é",
    ]
    assert report.counts == {"half of a character (a lone surrogate), replaced by U+FFFD": 1}


def test_the_folder_of_a_run_or_a_fine_tuning_stands_for_its_model(folder, tmp_path):
    for name in ("student", "model"):
        shutil.copytree(folder, tmp_path / name / name)
        assert Objects().model(str(tmp_path / name)) == str(tmp_path / name / name)
    assert Objects().model(folder) == str(folder)
    for name in ("owner/name", "~nobody/model", "a" * 5000, "nul\0"):
        assert Objects().model(name) == name
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ModelError, match=r"has no student yet; continue the run with .* or end it early with"):
        Objects().model(tmp_path)
