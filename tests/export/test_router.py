"""A router reads queries as the student does and documents as its teacher, and is made of such a pair alone."""

import json
import re

import pytest
import torch
from sentence_transformers import SentenceTransformer

import limbeck
from limbeck.core.records import Run, load, save
from limbeck.errors import ModelError, RecipeError
from limbeck.export.differences import ExportMismatchError
from limbeck.export.format_router import LARGEST_DIFFERENCE
from limbeck.models.loaded import open_model
from limbeck.models.locating import resolve_model
from limbeck.models.sentence_reader import sentence_pooling
from limbeck.models.vector_check import own_vectors, sample_texts
from tests.support.models import HIDDEN, make_teacher
from tests.support.recipes import recipe_of
from tests.support.students import sentence_student

TEXTS = [text for text, role in sample_texts() if role is None]
ASKED = "the river under the bridge"


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A teacher with prompts, whose tokens are not pooled."""
    folder = sentence_student(tmp_path_factory.mktemp("router"), max_length=40)
    prompts = {"prompts": {"query": "the river : ", "passage": "old stone : "}, "default_prompt_name": "passage"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts | {"similarity_fn_name": "dot"}))
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    return folder


@pytest.fixture(scope="module")
def run(teacher, text_folder, tmp_path_factory):
    """A finished run whose student was taught the teacher's vectors."""
    output = tmp_path_factory.mktemp("run") / "run"
    recipe = recipe_of(teacher, text_folder, {"name": "sentence_embedding"}, output=str(output))
    recipe["student"] = {"shape": {"layers": 1, "hidden": HIDDEN, "heads": 4, "ffn": 96}}
    recipe["stages"][0]["training"]["max_steps"] = 1
    limbeck.distill(recipe)
    return output


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    from limbeck.export import ExportRequest, export_model

    return export_model(ExportRequest(str(run), "router", output=tmp_path_factory.mktemp("out") / "router"))


def ours(folder, role):
    return own_vectors(open_model(folder), [(text, role) for text in TEXTS])


def test_queries_are_the_students_and_documents_the_teachers(exported, run, teacher):
    model = SentenceTransformer(str(exported.folder), device="cpu")
    options = {"convert_to_tensor": True, "show_progress_bar": False}
    for vectors, folder, role in (
        (model.encode_query(TEXTS, **options), run / "student", "query"),
        (model.encode_document(TEXTS, **options), teacher, "document"),
    ):
        torch.testing.assert_close(vectors, ours(folder, role), rtol=0, atol=1e-5)
        alone = SentenceTransformer(str(exported.folder / role), device="cpu")
        prompt = {"query": "query", "document": "passage"}[role]
        torch.testing.assert_close(alone.encode(TEXTS, prompt_name=prompt, **options), vectors, rtol=0, atol=1e-5)
    assert not torch.allclose(ours(run / "student", "query"), ours(run / "student", None), atol=1e-3), "prompts count"
    student = sentence_pooling(run / "student")
    assert (student.prompts, student.default_prompt) == ({"passage": "old stone : "}, "passage")
    assert model.similarity_fn_name == student.similarity == "dot"


def test_a_narrow_student_searches_by_the_map_that_it_keeps(teacher, text_folder, tmp_path, export):
    recipe = recipe_of(teacher, text_folder, {"name": "aligned_embedding"}, output=str(tmp_path / "run"))
    recipe["stages"][0]["training"]["max_steps"] = 1
    result = limbeck.distill(recipe)
    done = export(result.student, "router", texts=[ASKED])
    model = SentenceTransformer(str(done.folder), device="cpu")
    vectors = model.encode_query(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    assert vectors.shape == (len(TEXTS), HIDDEN) and (done.folder / "query" / "2_Dense").is_dir()
    torch.testing.assert_close(vectors, ours(result.student, "query"), rtol=0, atol=1e-5)


def test_it_is_saved_again_by_the_library(exported, tmp_path):
    model = SentenceTransformer(str(exported.folder), device="cpu")
    model.save_pretrained(str(tmp_path / "again"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    for name in ("encode_query", "encode_document"):
        assert (getattr(model, name)(ASKED) == getattr(again, name)(ASKED)).all()


def test_the_record_says_which_models_they_are(exported, teacher):
    record = exported.record
    assert (record["format"], record["source"], record["documents"]) == ("router", "run/student", teacher.name)
    assert record["prompts"] == {"query": "", "document": "old stone : "}, "its student read no query in training"
    assert record["differences"]["largest"].keys() == {"query", "document"}
    assert max(record["differences"]["largest"].values()) < LARGEST_DIFFERENCE
    assert 0 <= record["found"] <= 1


def test_the_command_finds_the_teacher_and_writes_a_card_that_works(limbeck, run, teacher, tmp_path):
    out = tmp_path / "router"
    shown = limbeck.shown("export", run, "--format", "router", "--output", out)
    assert f"documents by {teacher.name}" in shown
    card = (out / "README.md").read_text()
    assert "**Keeping an index.**" in card and "with the prompt `'old stone : '`" in card
    codes = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    result = {}
    for code in codes:
        exec(code.replace("path/to/router", str(out)), result)
    assert len(codes) == 2 and result["documents"].shape == (1, HIDDEN)


def test_an_equal_copy_of_the_teacher_may_lie_elsewhere(run, teacher, tmp_path, export):
    moved = teacher.rename(teacher.parent / "moved")
    try:
        with pytest.raises(
            ModelError, match=r"cannot be loaded; give the teacher's folder as --documents\. The model folder "
        ):
            export(run, "router")
        assert export(run, "router", documents=str(moved), texts=[ASKED]).record["documents"] == "moved"
    finally:
        moved.rename(teacher)


def test_a_student_of_no_run_needs_a_model_that_its_queries_find(run, teacher, tmp_path, export, monkeypatch):
    student = sentence_student(tmp_path / "student")
    with pytest.raises(
        ModelError, match="Nothing says which teacher .* learned from; name its teacher with --documents"
    ):
        export(student, "router")
    other = sentence_student(tmp_path / "other", "roberta")
    with pytest.raises(ModelError, match=r"find \d+% of 20 sample texts .* no record says"):
        export(student, "router", documents=str(other))
    done = export(student, "router", documents=str(student))
    assert done.record["found"] == 1 and done.record["prompts"] == {"query": "", "document": ""}


def test_students_of_other_spaces_are_refused(run, teacher, tmp_path, export):
    narrow = sentence_student(tmp_path / "narrow")
    write = {"documents": str(make_teacher(tmp_path / "plain", layers=1))}
    with pytest.raises(ModelError, match="does not say how it makes sentence vectors"):
        export(narrow, "router", **write)
    record = load(Run, run)
    stage = record.stages[0]
    kept = stage.layers
    try:
        stage.layers, stage.method = [], "minilmv2"
        save(record, run)
        with pytest.raises(ModelError, match="taught by minilmv2, which does not align its sentence vectors with its"):
            export(run, "router")
    finally:
        stage.layers, stage.method = kept, "sentence_embedding"
        save(record, run)


def test_vectors_of_other_widths_are_refused(run, tmp_path, export):
    wide = sentence_student(tmp_path)
    modes = ("mean", "cls")
    (wide / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": HIDDEN, "pooling_mode": modes}))
    with pytest.raises(
        ModelError, match=f"have width {HIDDEN} and those of .* have {2 * HIDDEN}, but all vectors of an index"
    ):
        export(run, "router", documents=str(wide))


def test_only_a_router_has_documents(run, export):
    with pytest.raises(
        RecipeError, match="--documents applies only to --format router, not to --format onnx; leave --documents out"
    ):
        export(run, "onnx", documents="a/b")
    with pytest.raises(RecipeError, match="'float16' is not possible with --format router"):
        export(run, "router", dtype="float16")


def test_a_folder_whose_vectors_differ_does_not_appear(run, export, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.export.format_router.LARGEST_DIFFERENCE", -1.0)
    with pytest.raises(ExportMismatchError, match="in (query|document), whose largest value"):
        export(run, "router", texts=[ASKED])
    assert not (tmp_path / "out").exists()


def test_a_router_is_no_model_to_distil(exported):
    with pytest.raises(ModelError, match="a Router of sentence-transformers.; give the folder of one of them, such as"):
        resolve_model(exported.folder)
    assert resolve_model(exported.folder / "query")


def test_a_router_is_scored_as_its_student_in_the_documents_of_its_teacher(exported, run, teacher, tmp_path):
    (tmp_path / "qrels").mkdir()
    rows = [{"_id": str(number), "text": text} for number, text in enumerate(TEXTS) if len(text.split()) > 3]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [row | {"text": " ".join(row["text"].split()[::2])} for row in rows]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"{row['_id']}\t{row['_id']}\t1\n" for row in rows)
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    result = limbeck.evaluate(
        [exported.folder, run / "student"], "retrieval", data=tmp_path, teacher=teacher, output=tmp_path / "out"
    )
    columns = {model["name"]: model["columns"] for model in result.summary["models"]}
    as_router, as_pair = columns[str(exported.folder)]["retrieval"], columns[str(run / "student")]["retrieval@teacher"]
    assert {name: as_router["metrics"][name] for name in as_pair["metrics"]} == as_pair["metrics"]
    assert as_router["mean"] != columns[str(run / "student")]["retrieval"]["mean"]
