"""Calls in Python: what commands do, with lists where they have commas, and mistakes refused in a line."""

import inspect as standard
import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from transformers import AutoModel, AutoTokenizer

import limbeck
from limbeck import inspection
from limbeck.api.calls import checked_call
from limbeck.api.named_recipes import print_reasons
from limbeck.errors import LimbeckError, RecipeError
from limbeck.recipe.schema import Recipe
from limbeck.training.warn import warn
from tests.support import mapping_search
from tests.support.models import make_teacher
from tests.support.task_files import CHUNKS, write_tasks

ROOMS = ("benchmark", "export", "report", "search")
QUICK = {"preset": "quick", "overrides": ["length=32", "epochs=1", "batch_size=8", "max_scored_rows=20"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_teacher(tmp_path_factory.mktemp("model"), layers=2, hidden=32, heads=4, ffn=64)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def evaluated(folder, data, tmp_path_factory):
    """An evaluation of a model object, beside one by its name."""
    objects = (AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder))
    output = tmp_path_factory.mktemp("evaluated") / "out"
    return limbeck.evaluate([folder, objects], ["rte"], output=output, data=data, seeds=1, **QUICK)


def test_models_are_scored_as_objects_and_by_name(evaluated):
    assert evaluated.failed == 0
    named, kept = (model["name"] for model in evaluated.summary["models"])
    assert kept.startswith(str(evaluated.folder / "inputs/BertModel-")) and "inputs" not in named
    table = evaluated.to_pandas()
    assert set(table["unit"]) == {"%"} and "retention, %" in table
    assert {"model", "column", "metric", "mean"} <= {*table} and set(table["model"]) >= {
        Path(named).name,
        Path(kept).name,
    }
    assert "RTE" in str(evaluated) and str(evaluated.folder) in str(evaluated)


def test_results_show_themselves_and_write_their_report(evaluated, tmp_path):
    page = evaluated._repr_html_()
    assert page.count("white-space:pre;") == 1 and "RTE" in page, "one table"
    written = evaluated.report(tmp_path / "page.html")
    assert written.is_file() and limbeck.report(evaluated, tmp_path / "b.html").html == tmp_path / "b.html"


def test_lines_that_a_call_prints_name_its_arguments():
    text = io.StringIO()
    console = Console(file=text, width=200)
    recipe = Recipe.model_construct(reasons={"corpus.task": "classification; name the labels with --label-column"})

    def print_lines():
        warn(console, "Start again with --overwrite --set corpus.held_out=0.39, for 91 of 233 documents.")
        print_reasons(recipe, console)

    print_lines()
    as_commands = text.getvalue()
    assert "with --overwrite --set corpus.held_out=0.39, for" in as_commands
    assert "the labels with --label-column." in as_commands
    text.truncate(0)
    checked_call(print_lines)()
    assert 'with overwrite=True, overrides="corpus.held_out=0.39", for' in text.getvalue()
    assert "the labels with label_column." in text.getvalue()


def test_one_model_and_one_task_need_no_list(folder, data, tmp_path):
    result = limbeck.evaluate(
        str(folder), "rte", output=tmp_path / "out", data=data, **QUICK | {"overrides": "epochs=1"}
    )
    assert [model["name"] for model in result.summary["models"]] == [str(folder)]
    with pytest.raises(RecipeError, match="Unknown task 'rtf'"):
        limbeck.evaluate(folder, ["rte", "rtf"], output=tmp_path / "other")


def test_the_rooms_of_these_names_are_called_and_imported():
    code = (
        "import sys, limbeck\n"
        "assert not {'torch', 'transformers'} & {*sys.modules}\n"
        "import limbeck.export.exporting, limbeck.search.requests\n"
        "from limbeck.report import page\n"
        f"assert all(callable(getattr(limbeck, name)) for name in {ROOMS})\n"
        "assert limbeck.search.requests.JOURNAL and page.build_page\n"
        "try: limbeck.search('mappings', output='x')\n"
        "except limbeck.errors.RecipeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("No search 'mappings'. Did you mean 'mapping'?")


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_the_signature_of_its_function(name):
    import limbeck.api

    assert standard.signature(getattr(limbeck, name)) == standard.signature(getattr(limbeck.api, name))


def test_an_export_of_an_object(folder, tmp_path):
    model = AutoModel.from_pretrained(folder)
    done = limbeck.export(model, "safetensors", dtype="float16", output=tmp_path / "half", text=["A text.", "Two."])
    assert AutoModel.from_pretrained(tmp_path / "half", dtype="auto").dtype.itemsize == 2
    assert {"model.safetensors", "config.json"} <= set(done.to_pandas()["file"])
    assert "float16" in str(done) and str(tmp_path / "half") in str(done)
    with pytest.raises(LimbeckError, match="private=True applies only to pushing"):
        limbeck.export(folder, "safetensors", private=True)
    with pytest.raises(LimbeckError, match="is not a valid name for a Hub repository"):
        done.push("a b c")


def test_a_task_file_may_be_a_path_alone(tmp_path):
    with pytest.raises(LimbeckError, match="own.yaml' does not exist"):
        limbeck.evaluate("student", tmp_path / "own.yaml", output=tmp_path / "scores")


@pytest.mark.parametrize("kind", ["phrases", "attention", "similarity", "contribution"])
def test_inspections_of_objects(folder, tmp_path, kind):
    (tmp_path / "chunks.txt").write_text(CHUNKS * 10)
    more = {"phrases": {"data": tmp_path / "chunks.txt"}, "attention": {"layers": [(1, 2), 2], "heads": ["mean", 1]}}
    texts = None if kind == "phrases" else ["The teacher is a model.", "It has layers of its own."] * 8
    result = limbeck.inspect(
        kind, AutoModel.from_pretrained(folder), folder, texts=texts, output=tmp_path / "look", **more.get(kind, {})
    )
    assert {path.suffix for path in result.files} == {".json", ".png"}
    assert len(result.to_pandas()) > 0 and "<pre" in result._repr_html_() and len(str(result)) > 50


@pytest.mark.parametrize(("count", "most"), [(None, 600), (7, 7)])
def test_an_inspection_reads_all_texts_of_a_list(folder, monkeypatch, count, most):
    counts = []
    measure = inspection.measure_contribution

    def counting(subject, texts, **options):
        counts.append(len(texts))
        return measure(subject, texts, **options)

    monkeypatch.setattr(inspection, "measure_contribution", counting)
    limbeck.inspect("contribution", folder, texts=[f"Text {number}." for number in range(600)], count=count)
    assert counts == [most]


def test_benchmarks_take_lists_and_models(folder, tmp_path):
    model = AutoModel.from_pretrained(folder)
    result = limbeck.benchmark(
        "model", [model, "1x16h2"], batch_sizes=[1], lengths=8, seconds=0.05, output=tmp_path / "rows.csv"
    )
    assert (tmp_path / "rows.csv").is_file() and len(result.to_pandas()) == len(result.rows) > 1
    loss = limbeck.benchmark("loss", lengths=[8], heads=2, widths=[16, 8], batch=1, seconds=0.05, memory=False)
    assert {row["length"] for row in loss.rows} == {8} and "relation_kl" in str(loss)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: limbeck.inspect("layers", "x"), "No inspection 'layers'"),
        (lambda: limbeck.inspect("phrases", "x"), r"limbeck.inspect\('phrases'\) needs data=…"),
        (lambda: limbeck.inspect("attention", "x", head=3), "has no option 'head'. Did you mean 'heads'"),
        (lambda: limbeck.benchmark("speed"), "No benchmark 'speed'"),
        (lambda: limbeck.benchmark("loss", width=3), "has no option 'width'. Did you mean 'widths'"),
        (lambda: limbeck.search("mapping", method="elm", output="x", genration=3), "has no option 'genration'"),
        (lambda: limbeck.search("architecture", method="elm", output="x"), "needs layers=…: Numbers of layers"),
        (lambda: limbeck.search("mapping", teacher="x", output="y"), "A search needs a method"),
        (
            lambda: limbeck.distill(teacher="x", output="y"),
            "Without a recipe, .* needed too: student, corpus;",
        ),
        (lambda: limbeck.distill(3), "recipe is of type int; give a Recipe, a dict or the path"),
        (lambda: limbeck.report("nowhere"), "'nowhere' does not exist"),
        (lambda: limbeck.validate({"teacher": "nowhere/x/y", "student": 3}), "nowhere/x/y"),
        (
            lambda: limbeck.validate(teacher="x"),
            "Without a recipe, .* needed too: student, corpus;",
        ),
        (lambda: limbeck.report(5), "folders: 5 is no folder; give paths of folders"),
        (lambda: limbeck.report(["x", 0]), "folders: 0 is no folder"),
        (lambda: limbeck.distill(outptu="x"), "limbeck.distill has no argument 'outptu'. Did you mean 'output'?"),
        (lambda: limbeck.report("x", markdwn=True), "limbeck.report has no argument 'markdwn'. Did you mean"),
        (lambda: limbeck.search("mapping", method="elm"), "limbeck.search: missing a required argument: 'output'"),
        (lambda: limbeck.validate("a", "b", "c"), "limbeck.validate: too many positional arguments"),
    ],
    ids=range(19),
)
def test_mistakes_are_one_line(call, said):
    with pytest.raises(LimbeckError, match=said) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_check_takes_what_a_run_takes(folder, tmp_path):
    texts = ["The teacher is a model of words and text."] * 40
    plan = limbeck.validate(teacher=AutoModel.from_pretrained(folder), student=1, corpus=texts, method="minilmv2")
    assert plan.student_plan.source_layers == [2] and plan.recipe.stages[0].method["name"] == "minilmv2"
    assert limbeck.LimbeckError is LimbeckError


def test_a_search_takes_the_options_of_its_command(monkeypatch, text_folder, tmp_path):
    mapping_search.install(monkeypatch)
    teacher = mapping_search.write_teacher(tmp_path)
    recipe = mapping_search.recipe_data(teacher, text_folder)
    result = limbeck.search(
        "mapping", recipe, "seed=3", output=tmp_path / "found", generations=2, population=4, teacher_layers=[1, 2, 3, 8]
    )
    assert len(result.record["candidates"]) > 2 and result.recipe["seed"] == 3
    assert {layer for item in result.record["candidates"] for layer in item["mapping"]} <= {0, 1, 2, 3, 8}
    assert result.folder == tmp_path / "found" and Path(result.report()).is_file()
    assert len(result.to_pandas()) == len(result.record["candidates"])
