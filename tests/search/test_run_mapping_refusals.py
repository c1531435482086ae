"""What a mapping search refuses: one line, before a student is trained, and nothing that is there is lost."""

import json
from pathlib import Path

import pytest

from limbeck.errors import CorpusError, LimbeckError, OutputError, RecipeError
from limbeck.search.mapping import search_mapping, task_measures
from tests.support import mapping_search
from tests.support.corpora import write_text
from tests.support.mapping_search import make_request, recipe_data
from tests.support.task_files import write_tasks


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return mapping_search.write_teacher(tmp_path_factory.mktemp("refused"))


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("refused-text"))


@pytest.fixture
def recipe(teacher, text):
    return recipe_data(teacher, text)


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    found = mapping_search.install(monkeypatch)
    yield found
    assert not found.batches, "nothing is trained"


def refused(kind, request, *parts):
    with pytest.raises(kind) as caught:
        search_mapping(request)
    line = str(caught.value)
    assert "\n" not in line
    for part in parts:
        assert part in line
    return line


def shape(recipe, **changes):
    return recipe | {"student": {"shape": recipe["student"]["shape"] | changes}}


def method(recipe, **options):
    return recipe | {"stages": [recipe["stages"][0] | {"method": options}]}


def test_a_student_deeper_than_its_teacher(recipe, tmp_path):
    deep = shape(recipe, layers=9)
    refused(LimbeckError, make_request(deep, tmp_path / "out"), "9", "8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"teacher_layers": (3,)}, ["[0, 0, 0, 3] is the only layer mapping there is"]),
        ({"teacher_layers": (9,)}, ["Teacher layer 9 does not exist", "1 to 8"]),
        ({"generations": 0}, ["--generations 0", "1 or more"]),
        ({"batch": 0}, ["--batch 0"]),
        ({"workers": -1}, ["--workers -1"]),
        ({"steps": 0}, ["--steps 0"]),
        ({"share": 0.0}, ["--share 0"]),
        ({"share": 1.5}, ["--share 1.5"]),
        ({"share": float("nan")}, ["--share nan"]),
        ({"name": " "}, ["--name is empty"]),
        ({"genetic": {"population": 1}}, ["A population of 1 cannot breed"]),
        ({"genetic": {"population": 10**6}}, ["A population of 1000000", "at most"]),
        ({"genetic": {"crossover": 1.2}}, ["crossover 1.2", "0 to 1"]),
        ({"genetic": {"flip": float("nan")}}, ["flip nan"]),
        ({"genetic": {"elite": 12}}, ["elite of 12"]),
        ({"genetic": {"parents": "bests"}}, ["Unknown parents 'bests'", "Did you mean 'best'?"]),
        ({"genetic": {"populaton": 3}}, ["Unknown genetic setting 'populaton'", "Did you mean 'population'?"]),
    ],
)
def test_numbers_and_names_that_cannot_be_meant(recipe, tmp_path, options, parts):
    refused(RecipeError, make_request(recipe, tmp_path / "out", **options), *parts)
    assert not (tmp_path / "out").exists()


def test_teacher_layers_that_leave_no_mapping(text, tmp_path):
    deep = mapping_search.write_teacher(tmp_path, layers=12)
    request = make_request(recipe_data(deep, text), tmp_path / "out", teacher_layers=(1, 2))
    refused(RecipeError, request, "No layer mapping is left", "teacher layers 5 to 12", "[1, 2]")


def test_a_method_without_a_mapping(recipe, tmp_path):
    line = refused(RecipeError, make_request(method(recipe, name="minilmv2", relation_heads=2), tmp_path / "out"))
    assert line == (
        "'minilmv2' takes no layer mapping; methods that do are bert_pkd, elm, hidden_states, minilm, "
        "mlkd_bert, tinybert."
    )


def test_a_method_that_cannot_learn_by_every_mapping(recipe, tmp_path):
    request = make_request(shape(method(recipe, name="bert_pkd"), hidden=16), tmp_path / "out")
    refused(RecipeError, request, "The search may try mapping [0, 0, 0, 1]", "bert_pkd", "has none")


def test_a_recipe_without_stages(recipe, tmp_path):
    refused(RecipeError, make_request(recipe | {"stages": []}, tmp_path / "out"), "no stages")


def test_a_recipe_of_labelled_rows(recipe, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"text {n}", "label": n % 2}) + "\n" for n in range(30)))
    corpus = {"sources": [str(rows)], "length": 32, "task": {"kind": "classification"}}
    request = make_request(recipe | {"corpus": corpus}, tmp_path / "out")
    refused(RecipeError, request, "labelled rows (classification)", "leave corpus.task out")


def test_no_held_out_text_where_it_decides(recipe, tmp_path):
    bare = recipe | {"corpus": recipe["corpus"] | {"held_out": 0.0}}
    refused(CorpusError, make_request(bare, tmp_path / "out"), "No text is held out", "corpus.held_out", "--tasks")


def test_too_little_held_out_text(recipe, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("\n\n".join(f"one line of text number {n} and no more" for n in range(12)))
    little = recipe | {"corpus": recipe["corpus"] | {"sources": [str(short)]}}
    refused(CorpusError, make_request(little, tmp_path / "out"), "hold out more text")


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"tasks": "sst3"}, RecipeError, ["Unknown task 'sst3'", "Did you mean 'sst2'?"]),
        ({"tasks": " , "}, RecipeError, ["--tasks names no task"]),
        ({"tasks": "rte", "preset": "quik"}, RecipeError, ["Unknown preset 'quik'", "Did you mean 'quick'?"]),
        ({"tasks": "rte", "seeds": 0}, RecipeError, ["--seeds is 0"]),
        ({"tasks": "none", "settings": ["epochs=1"]}, RecipeError, ["--set-task", "there is none"]),
        ({"tasks": "rte", "settings": ["epochs"]}, RecipeError, ["'epochs' has no value"]),
        ({"tasks": "rte", "settings": ["epoch=1"]}, RecipeError, ["epoch"]),
        ({"tasks": "rte", "data": "/nowhere"}, CorpusError, ["'/nowhere' does not exist"]),
        ({"tasks": "sst2", "data": "FILES"}, CorpusError, ["SST-2"]),
        ({"data": "FILES"}, CorpusError, ["SST-2"]),
        ({"tasks": "cola", "data": "FILES"}, CorpusError, ["CoLA"]),
    ],
)
def test_proxy_tasks_that_cannot_be(recipe, tmp_path, options, kind, parts):
    options = {"tasks": None, "data": None, "preset": "quick", "seeds": 1} | options
    if options["data"] == "FILES":
        options["data"] = str(write_tasks(tmp_path / "data"))
    with pytest.raises(kind) as caught:
        search_mapping(make_request(recipe, tmp_path / "out", measures=task_measures(options.pop("tasks"), **options)))
    line = str(caught.value)
    assert "\n" not in line and all(part in line for part in parts), line


def test_a_task_without_labels_to_score(recipe, tmp_path):
    data = write_tasks(tmp_path / "data")
    for split in ("train", "dev"):
        (data / "RTE" / f"{split}.tsv").unlink()
    (data / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tone text\tanother\n")
    measures = task_measures("rte", data=str(data), preset="quick", seeds=1)
    refused(CorpusError, make_request(recipe, tmp_path / "out", measures=measures), "RTE")


@pytest.mark.parametrize(
    ("storage", "kind", "parts"),
    [
        ("sqlite:////nowhere/at/all/search.db", OutputError, ["cannot be reached", "check the URL"]),
        ("mongodb://somewhere/search", RecipeError, ["Unknown storage 'mongodb'"]),
        ("sqlite://::::bad", RecipeError, ["malformed"]),
        ("sqlite:/search.db", RecipeError, ["malformed", "sqlite:///search.db"]),
        ("/proc/nowhere/search.journal", OutputError, ["cannot be opened"]),
    ],
)
def test_a_storage_that_cannot_be_reached(recipe, tmp_path, storage, kind, parts):
    refused(kind, make_request(recipe, tmp_path / "out", storage=storage), *parts)


def test_an_output_that_holds_something_else(recipe, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused(OutputError, make_request(recipe, tmp_path / "file"), "is a file")
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("name: a run\n")
    refused(OutputError, make_request(recipe, run), "holds no search")
    assert [path.name for path in run.iterdir()] == ["recipe.yaml"]
    (run / "search.json").write_text(json.dumps({"kind": "architecture", "name": "architecture"}))
    refused(OutputError, make_request(recipe, run), "the search architecture 'architecture', not mapping 'mapping'")
    (run / "search.json").write_text("{")
    refused(OutputError, make_request(recipe, run), "cannot be read")
