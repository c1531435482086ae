"""Recipes that are chosen by what a teacher is: methods, starts, text and budgets, with their reasons."""

import gzip
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import limbeck
from limbeck.errors import LimbeckError, RecipeError
from limbeck.recipe import budget, choose_recipe, choosing, load_recipe, plan_run
from limbeck.recipe.asked import choose_by_options, merge_options
from limbeck.recipe.chosen_models import describe_random_start
from limbeck.recipe.models import StudentSpec
from limbeck.recipe.overrides import apply_overrides
from limbeck.recipe.schema import Recipe
from limbeck.recipe.shipped import read_shipped
from limbeck.recipe.text_size import size_of_text
from tests.support.models import make_embedding, make_teacher
from tests.support.task_files import CHUNKS, write_table, write_tasks


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Teachers of every kind, and text and rows for each."""
    folder = tmp_path_factory.mktemp("chosen")
    make_embedding(folder / "embedding")
    heads = {"masked_lm": {}, "classification": {"num_labels": 3}, "regression": {"num_labels": 1}}
    heads |= {"token_classification": {"num_labels": 5}, "question_answering": {}, "multi_label": {"num_labels": 2}}
    for head, changes in heads.items():
        make_teacher(folder / head, head=head, **changes)
    make_teacher(folder / "encoder")
    make_teacher(folder / "decoder", "gpt2")
    chunks = folder / "token_classification/teacher-bert/config.json"
    names = {"id2label": dict(enumerate(("O", "B-NP", "I-NP", "B-VP", "B-PP")))}
    chunks.write_text(json.dumps(json.loads(chunks.read_text()) | names))
    topics = folder / "multi_label/teacher-bert/config.json"
    names = {"problem_type": "multi_label_classification"}
    topics.write_text(json.dumps(json.loads(topics.read_text()) | names))
    query = {"query": "who is it", "positive": "it is the model", "negatives": ["a text", "we are"]}
    answers = {"text": ["model"], "answer_start": [4]}
    question = {"question": "what is it", "context": "the model is it", "answers": answers}
    for name, row in {"queries": query, "questions": question, "topics": {"text": "the model", "labels": [0]}}.items():
        (folder / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n" * 20)
    write_table(
        folder / "pairs.tsv", ("sentence1", "sentence2", "label"), [("the model", "it is", 1), ("a text", "it", 0)] * 10
    )
    write_table(folder / "values.tsv", ("sentence", "score"), [("the model", 1.5)] * 20)
    (folder / "chunks.txt").write_text(CHUNKS * 10)
    (folder / "text.txt").write_text("The teacher is a model of words and text.\n\n" * 400)
    return folder


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(budget, "_guess_rate", lambda: (1e11, "2 cores"))


def chosen(place, teacher, student=2, corpus="text.txt", family="bert", **more):
    return choose_recipe(place / teacher / f"teacher-{family}", student, place / corpus, **more)


def test_each_layer_of_a_student_of_a_task_learns_from_the_layer_that_it_is_a_copy_of(place):
    first, second = chosen(place, "classification", 3, corpus="pairs.tsv")["stages"]
    assert first["method"]["mapping"] == "ends"
    assert "mapping" not in second["method"]
    # Layers that start at random are no copies.
    wide = {"shape": {"layers": 2, "hidden": 96, "heads": 4, "ffn": 48}}
    first, _ = chosen(place, "classification", wide, corpus="pairs.tsv")["stages"]
    assert "mapping" not in first["method"]


@pytest.mark.parametrize(
    ("teacher", "corpus", "methods", "told"),
    [
        ("embedding", "text.txt", ["sentence_embedding"], "makes sentence vectors (mean)"),
        ("masked_lm", "text.txt", ["minilmv2"], "a masked language model"),
        ("encoder", "text.txt", ["minilmv2"], "an encoder"),
        ("classification", "pairs.tsv", ["mlkd_bert", "mlkd_bert"], "does classification"),
        ("multi_label", "topics.jsonl", ["mlkd_bert", "mlkd_bert"], "does multi label"),
        ("token_classification", "chunks.txt", ["mlkd_bert", "mlkd_bert"], "does token classification"),
        ("question_answering", "questions.jsonl", ["mlkd_bert", "mlkd_bert"], "does question answering"),
        ("regression", "values.tsv", ["mlkd_bert", "mlkd_bert"], "does regression"),
        ("regression", "queries.jsonl", ["reranker"], "a cross-encoder"),
    ],
)
def test_a_method_for_every_kind_of_teacher_that_a_plan_takes(place, teacher, corpus, methods, told):
    recipe = chosen(place, teacher, corpus=corpus)
    assert [stage["method"]["name"] for stage in recipe["stages"]] == methods
    assert told in recipe["reasons"]["stages.0.method"]
    found = plan_run(load_recipe(recipe))
    assert (found.student.layers, found.student.hidden, found.student.heads) == (2, 48, 4)
    assert found.student_plan.source_layers == [1, 4]
    assert found.summary()["chosen student"] == recipe["reasons"]["student"]


@pytest.mark.parametrize(
    ("teacher", "name", "content", "corpus"),
    [
        ("classification", "a.txt", "the model\nit is\n", {"task": {"kind": "classification"}}),
        ("multi_label", "a.md", "# A\n\nIt is the model.\n", {"task": {"kind": "multi_label"}}),
        ("regression", "a.txt", "the model\tof it\nit\tis\n", None),
        ("regression", "b.txt", "the model\nit is\n\n", {"task": {"kind": "regression"}}),
        ("token_classification", "a.txt", "The model is it.\n", {"task": {"kind": "token_classification"}}),
        ("classification", "a.csv", "text\nthe model\n", {"text_column": "text", "task": {"kind": "classification"}}),
        (
            "classification",
            "a.jsonl",
            '{"premise": "it", "hypothesis": "is"}\n',
            {"text_column": "premise", "task": {"kind": "classification", "pair_column": "hypothesis"}},
        ),
        ("token_classification", "b.jsonl", '{"tokens": ["it"]}\n', {"task": {"kind": "token_classification"}}),
        (
            "token_classification",
            "c.jsonl",
            '{"text": "it"}\n',
            {"task": {"kind": "token_classification", "tokens_column": "text"}},
        ),
        (
            "question_answering",
            "a.jsonl",
            '{"question": "who", "context": "it"}\n',
            {"task": {"kind": "question_answering"}},
        ),
    ],
)
def test_texts_without_labels_teach_what_the_teacher_says(place, tmp_path, teacher, name, content, corpus):
    (tmp_path / name).write_text(content)
    folder = place / teacher / "teacher-bert"
    if corpus is None:
        with pytest.raises(RecipeError, match="has of it, the model"):
            choose_recipe(folder, 2, tmp_path / name)
        return
    recipe = choose_recipe(folder, 2, tmp_path / name)
    del recipe["corpus"]["sources"], recipe["corpus"]["length"]
    corpus["task"]["labelled"] = False
    assert recipe["corpus"] == corpus
    reason = recipe["reasons"]["corpus.task"]
    assert "without labels" in reason
    # Only a table has further columns, which may be those of the labels.
    assert ("--label-column" in reason) == ("text_column" in corpus)


def test_what_is_chosen_is_told_with_its_reasons(place):
    teacher = place / "embedding/teacher-bert"
    assert chosen(place, "embedding", "2", output="runs/x") | {"stages": 0} == {
        "name": "teacher-bert-2x48",
        "output": "runs/x",
        "teacher": {"model": str(teacher)},
        "student": {"shape": 2, "initialise": {"layers": "ends"}, "dropout": 0.0},
        "corpus": {"sources": [str(place / "text.txt")], "unit": "sentence", "length": 64, "held_out": 0.05},
        "stages": 0,
        "reasons": {
            "student": "starts from layers 1, 4 of the teacher's 4, spread from the first to the last as in the "
            "quickstart's recipe",
            "stages.0.method": f"sentence_embedding: {teacher} makes sentence vectors (mean), and the student, "
            "which has the same width, learns to make the same vectors",
            "corpus": "cut into sentences, as in the recipe of `limbeck quickstart`; no prompt, as its files say",
            "stages.0.training": "3 passes through 17.20 kB of text, about 1 minute on 2 cores, estimated from "
            "sizes, not measured; the limit is 30 minutes, and more steps make better students",
            "corpus.held_out": "5% of the documents, to measure the student on them; a recipe that you write holds out "
            "1% by default",
        },
    }


PARALLEL = {"parallel": {"en": "text.txt", "de": "text.txt"}}


@pytest.mark.parametrize(
    ("corpus", "overrides", "share"),
    [
        (["text.txt"], [], 0.05),
        ({"sources": ["text.txt"], "streaming": True}, [], 0.05),
        ({"sources": ["text.txt"], "held_out": 0.2}, [], 0.2),
        (["text.txt"], ["corpus.held_out=0.2"], 0.2),
        (["text.txt"], ["corpus.task.kind=classification", "corpus.task.labelled=false"], None),
    ],
)
@pytest.mark.parametrize("method", [None, "sentence_embedding"])
def test_text_of_options_has_held_out_documents_enough(place, monkeypatch, method, corpus, overrides, share):
    monkeypatch.chdir(place)
    options = {"teacher": "embedding/teacher-bert", "student": 2, "corpus": corpus}
    if method is not None:
        options["method"] = method
    recipe = apply_overrides(choose_by_options(options, overrides=overrides), overrides)
    assert recipe["corpus"].get("held_out") == share
    assert ("corpus.held_out" in recipe["reasons"]) == (share == 0.05)


def test_parallel_text_holds_out_as_text_does(place, monkeypatch):
    monkeypatch.chdir(place)
    options = {"teacher": "embedding/teacher-bert", "student": 2, "corpus": {"sources": [PARALLEL]}}
    recipe = choose_by_options(options | {"method": "sentence_embedding"})
    assert recipe["corpus"]["held_out"] == 0.05
    assert "corpus.held_out" in recipe["reasons"]


def test_stored_vectors_hold_out_as_text_does_and_scores_as_rows_do(place):
    options = {"student": 2, "teacher": {"targets": "v.jsonl", "vector": "v"}}
    assert choose_by_options(options)["corpus"]["held_out"] == 0.05
    options["teacher"] = {"targets": "v.jsonl", "score": "s"}
    assert "held_out" not in choose_by_options(options)["corpus"]


@pytest.mark.parametrize("method", [None, "minilmv2"])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_continued_run_keeps_the_share_that_it_began_with(place, tmp_path, method, share):
    options = {"teacher": place / "masked_lm/teacher-bert", "student": 2, "corpus": place / "text.txt"}
    if method is not None:
        options["method"] = method
    small = ["stages.0.training.max_steps=2", "evaluation.enabled=false", "stages.0.training.bf16=false"]
    # An earlier version held out the default of written recipes.
    begun = {**options, "overrides": [*small, f"corpus.held_out={share}"], "output": tmp_path / "run"}
    limbeck.distill(**begun)
    again = limbeck.distill(**options, overrides=small, output=tmp_path / "run", resume=True)
    assert again.record["status"] == "finished"
    saved = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert saved["corpus"]["held_out"] == share


def test_a_continued_run_of_0_steps_keeps_the_start_that_it_began_with(place, tmp_path):
    options = {"teacher": place / "masked_lm/teacher-bert", "student": 2, "corpus": place / "text.txt", "steps": 0}
    # An earlier version fitted nothing.
    unfitted = ["student.initialise.fit=null", "evaluation.enabled=false"]
    limbeck.distill(**options, overrides=unfitted, output=tmp_path / "run")
    again = limbeck.distill(**options, overrides=unfitted[1:], output=tmp_path / "run", resume=True)
    assert again.record["status"] == "finished"
    saved = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert saved["student"]["initialise"].get("fit") is None


def test_prompts_by_role_are_told(place, tmp_path):
    teacher = make_embedding(tmp_path)
    (teacher / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "q: "}}))
    told = choose_recipe(teacher, 2, place / "text.txt")["reasons"]["corpus"]
    assert told.endswith("no prompt: the role of a source gives the teacher's (query)")


def test_a_narrower_student_of_vectors_keeps_a_map(place):
    recipe = chosen(place, "embedding", {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48})
    (stage,) = recipe["stages"]
    assert recipe["name"] == "teacher-bert-2x24-48d", "its vectors are as wide as the teacher's"
    assert stage["method"] == {"name": "aligned_embedding"} and "freeze" not in stage
    assert "learns a map to them and keeps it" in recipe["reasons"]["stages.0.method"]
    assert recipe["student"]["initialise"] == {"layers": "ends", "narrow_by": "activations"}
    assert recipe["reasons"]["student"].endswith("24 wide along principal directions of its hidden states")
    (term,) = plan_run(load_recipe(recipe)).stages[0].terms
    assert term.learned_map.kept


def test_the_vectors_follow_the_quickstart_but_for_what_depends_on_models_and_text(place):
    quickstart = yaml.safe_load(read_shipped("quickstart"))["stages"][-1]
    (stage,) = chosen(place, "embedding")["stages"]
    changed = {"layer_mapping": {1: 1}}
    assert stage["method"] == {k: v for k, v in quickstart["method"].items() if k != "pooling"} | changed
    docs = choose_recipe(place / "embedding/teacher-bert", 2, "installed-docs")["stages"][0]
    assert docs["training"]["max_steps"] > 100, "the size of this source is not known"


@pytest.mark.parametrize(
    ("rate", "training", "told"),
    [
        (1e11, {"num_train_epochs": 3}, "3 passes through 9.00 MB of text, about 1 minute on 2 cores"),
        (1e9, {"max_steps": 1525}, "1,525 steps through 9.00 MB of text, about 30 minutes"),
        (1e6, {"max_steps": 100}, "the limit is 30 minutes or 100 steps"),
    ],
)
def test_the_budget_is_the_text_or_half_an_hour(place, monkeypatch, rate, training, told):
    monkeypatch.setattr(budget, "_guess_rate", lambda: (rate, "2 cores"))
    monkeypatch.setattr(choosing, "size_of_text", lambda *_, **__: 9_000_000)
    recipe = chosen(place, "masked_lm")
    found = recipe["stages"][0]["training"]
    assert {key: found[key] for key in found if key in ("max_steps", "num_train_epochs")} == training
    assert told in recipe["reasons"]["stages.0.training"]


RANKING = {"type": "ranking", "columns": {"query": "query", "documents": ["positive", "negatives"]}}
PAIRS = {"type": "pair", "columns": {"text": "sentence1", "pair": "sentence2"}, "labels": ["0", "1", "2"]}
TAGS = {"type": "token_classification", "labels": ["O", "B-NP", "I-NP", "B-VP", "B-PP"]}


@pytest.mark.parametrize("rate", [1e11, 1e5])
@pytest.mark.parametrize(
    ("teacher", "rows", "task"),
    [
        ("regression", "rankings.jsonl", RANKING),
        ("classification", "pairs.tsv", PAIRS),
        ("token_classification", "chunks.txt", TAGS),
    ],
)
def test_rows_of_a_task_file_are_trained_on_as_the_rows_that_are_named_directly(
    place, monkeypatch, teacher, rows, task, rate
):
    # With the slow rate the training is bounded by the cost of a step, so that the tokens of a row count too.
    monkeypatch.setattr(budget, "_guess_rate", lambda: (rate, "2 cores"))
    monkeypatch.setattr(budget, "_LEAST_STEPS", 1)
    rankings = [{"query": f"what is {n}", "positive": "the model", "negatives": ["a text", "it"]} for n in range(20)]
    (place / "rankings.jsonl").write_text("\n".join(map(json.dumps, rankings)))
    file = place / f"{teacher}.yaml"
    file.write_text(yaml.safe_dump({"name": f"my-{teacher}", **task, "files": {"train": rows}}))
    by_task = chosen(place, teacher, corpus=file.name)
    by_rows = chosen(place, teacher, corpus=rows)
    assert by_task["corpus"]["task"] == str(file)
    assert [stage["training"] for stage in by_task["stages"]] == [stage["training"] for stage in by_rows["stages"]]
    reason = by_task["reasons"]["stages.0.training"]
    assert reason == by_rows["reasons"]["stages.0.training"]
    assert ("passes through" in reason) == (rate == 1e11) and "unknown" not in reason


@pytest.mark.parametrize("method", [{}, {"method": "hidden_states"}])
@pytest.mark.parametrize("named", [{"text_column": "text"}, {"overrides": "corpus.text_column=text"}])
def test_the_usual_column_is_refused_where_it_is_named_and_missing(place, method, named):
    (place / "films.csv").write_text("review,year\nthe model is a text,1999\n")
    options = {"teacher": str(place / "encoder/teacher-bert"), "student": 2, "corpus": str(place / "films.csv")}
    assert limbeck.validate(**options, **method).recipe.corpus.text_column == "text"
    with pytest.raises(LimbeckError, match=r"has no column 'text': .* column 'review' is read .* text_column out"):
        limbeck.validate(**options, **method, **named)


def test_packed_rows_have_the_size_of_their_content(place, tmp_path):
    lines = ["sentence\tlabel", *(f"the model reads text {number}\t{number % 2}" for number in range(200))]
    content = "\n".join(lines).encode()
    sizes = {}
    for name, packed in {"rows.tsv": content, "rows.tsv.gz": gzip.compress(content)}.items():
        (tmp_path / name).write_bytes(packed)
        sizes[name] = size_of_text([str(tmp_path / name)], of_rows=True)
    assert sizes == {"rows.tsv": len(content), "rows.tsv.gz": len(content)}

    # The columns of a parquet file are packed too.
    rows = {"sentence": [f"the model reads text {number}" for number in range(200)], "label": [0, 1] * 100}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", use_dictionary=False, compression="zstd")
    bytes_of_texts = sum(map(len, rows["sentence"]))
    assert bytes_of_texts < size_of_text([str(tmp_path / "rows.parquet")], of_rows=True) < 2 * bytes_of_texts + 8 * 200


def test_the_files_of_a_built_in_task_in_a_data_folder_have_a_size(place, tmp_path):
    teacher = make_teacher(tmp_path, head="classification", id2label=dict(enumerate(("not_entailment", "entailment"))))
    data = write_tasks(tmp_path / "data")
    recipe = choose_recipe(teacher, 2, "rte", columns={"data": str(data)})
    size = (data / "RTE/train.tsv").stat().st_size
    assert f"10 passes through {size / 1000:.2f} kB of text" in recipe["reasons"]["stages.0.training"]
    # Without the folder the rows are on the Hub.
    recipe = choose_recipe(teacher, 2, "rte")
    assert "steps through text of unknown size" in recipe["reasons"]["stages.0.training"]


@pytest.mark.parametrize(("corpus", "tokens_of_query"), [("long.jsonl", 7 * 128), ("hub:owner/name", 650)])
def test_a_step_of_a_ranking_costs_the_tokens_of_all_its_documents(place, monkeypatch, corpus, tokens_of_query):
    # Each of the seven documents has 300 words, and is cut to the length of the recipe.
    row = {"positive": "model " * 300, "negatives": ["text " * 300] * 6}
    lines = [json.dumps({"query": f"who is it {number}", **row}) for number in range(100)]
    (place / "long.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(place)
    monkeypatch.setattr(budget, "_guess_rate", lambda: (1e7, "2 cores"))
    monkeypatch.setattr(budget, "_LEAST_STEPS", 1)

    recipe = choose_recipe(place / "regression/teacher-bert", 2, corpus)
    assert recipe["corpus"]["length"] == 128
    # Two operations for each weight of the teacher's four layers, and six for each of the student's two.
    weights_of_layer = 4 * 48**2 + 2 * 48 * 96
    operations_of_token = (2 * 4 + 6 * 2) * weights_of_layer
    tokens_of_step = 8 * tokens_of_query
    steps = int(30 * 60 * 1e7 / operations_of_token / tokens_of_step)
    assert recipe["stages"][0]["training"]["max_steps"] == steps
    assert recipe["reasons"]["stages.0.training"].startswith(f"{steps} steps through")


def test_a_student_that_cannot_start_from_layers_starts_at_random(place, tmp_path):
    make_teacher(tmp_path, "mpnet", head="masked_lm")
    narrow = choose_recipe(tmp_path / "teacher-mpnet", "2x24", place / "text.txt")
    assert narrow["student"]["initialise"] == {"layers": "random"}
    reason = narrow["reasons"]["student"]
    assert reason.startswith("starts at random: ") and reason[18].islower() and not reason.endswith(".")
    cut = chosen(place, "masked_lm", {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48})
    assert cut["student"]["initialise"] == {"layers": "ends"}
    assert "cut from 48 to 24 wide" in cut["reasons"]["student"] and "student.shape" not in cut["reasons"]


_SIZES = {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}


@pytest.mark.parametrize(
    ("student", "start", "told"),
    [
        (_SIZES, {"layers": "ends"}, "starts from layers 1, 4 of the teacher's 4"),
        (2, {"layers": "ends"}, "starts from layers 1, 4 of the teacher's 4"),
        ({"shape": "9x48", "dropout": 0.0}, {"layers": "random"}, "starts at random: a student of 9 layers"),
        ({"shape": _SIZES, "initialise": {"layers": "first"}}, {"layers": "first"}, None),
        ({"shape": _SIZES, "initialise": {"layers": "random"}}, {"layers": "random"}, None),
        ({"shape": _SIZES, "initialise": {"embeddings": "random"}}, {"layers": "ends", "embeddings": "random"}, "1, 4"),
    ],
)
@pytest.mark.parametrize("teacher", ["masked_lm/teacher-bert", "decoder/teacher-gpt2"])
def test_beside_a_method_the_start_is_chosen_where_none_is_named(place, teacher, student, start, told):
    given = {"teacher": str(place / teacher), "student": student, "corpus": ["text.txt"], "method": "hidden_states"}
    recipe = choose_by_options(given)
    assert recipe["student"]["initialise"] == start and recipe["stages"] == [{"method": "hidden_states"}]
    said = (recipe.get("reasons") or {}).get("student")
    assert said is None if told is None else told in said


def test_a_student_beyond_its_teacher_is_told(place):
    wider = chosen(place, "masked_lm", {"layers": 2, "hidden": 96, "heads": 2, "ffn": 96})
    assert "wider than its teacher, 96 against 48" in wider["reasons"]["student.shape"]
    larger = chosen(place, "masked_lm", {"layers": 9, "hidden": 48, "heads": 4, "ffn": 96})
    assert "larger than its teacher" in larger["reasons"]["student.shape"]
    assert "starts from layer 4 of the teacher's 4" in chosen(place, "masked_lm", 1)["reasons"]["student"]


@pytest.mark.parametrize(
    ("teacher", "student", "corpus", "parts"),
    [
        ("decoder/teacher-gpt2", 2, "text.txt", ["is a decoder (gpt2)", "name a method"]),
        ("masked_lm/teacher-bert", 5, "text.txt", ["would keep 5 of the teacher's layers", "has only 4", "5x48"]),
        ("masked_lm/teacher-bert", 0, "text.txt", ["'0' would have no layer", "give --student a number from 1 to 4"]),
        ("masked_lm/teacher-bert", "2by4", "text.txt", ["Cannot read the student '2by4'"]),
        ("masked_lm/teacher-bert", 2, "nowhere.txt", ["nowhere.txt"]),
        ("nowhere", 2, "text.txt", ["The model folder"]),
        ("classification/teacher-bert", 2, "nowhere.tsv", ["nowhere.tsv"]),
        ("question_answering/teacher-bert", 2, "text.txt", ["has only texts", "the columns question and context"]),
        ("classification/teacher-bert", 2, "queries.jsonl", ["has negatives, positive, query", "--example task"]),
        ("question_answering/teacher-bert", 2, "pairs.tsv", ["a question, a context and answers"]),
    ],
)
def test_what_cannot_be_chosen_is_one_line(place, teacher, student, corpus, parts):
    with pytest.raises(LimbeckError) as caught:
        choose_recipe(place / teacher, student, place / corpus)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cross_encoder_that_says_so_needs_queries(place, tmp_path):
    teacher = make_teacher(tmp_path, head="ranking", num_labels=1, id2label={0: "relevance"})
    with pytest.raises(RecipeError, match="does ranking, which is taught on rows of a query and its documents"):
        choose_recipe(teacher, 2, place / "values.tsv")


@pytest.mark.parametrize(("student", "rate"), [("2x48", 3e-4), ("2x384h4", 3e-4), ("2x768h4", 1.5e-4)])
def test_the_rate_of_a_task_falls_with_the_students_width(place, student, rate):
    recipe = chosen(place, "classification", student=student, corpus="pairs.tsv")
    assert {stage["training"]["learning_rate"] for stage in recipe["stages"]} == {rate}


def test_a_task_by_its_name_gives_the_rows(place):
    recipe = choose_recipe(place / "classification/teacher-bert", 2, "mnli")
    assert recipe["corpus"] == {"task": "mnli", "length": 128}
    assert [stage["training"].get("max_steps") is None for stage in recipe["stages"]] == [False, False]


def test_reasons_go_with_the_values_that_they_are_for(place):
    recipe = chosen(place, "embedding")
    kept = apply_overrides(recipe, ["stages.0.training.max_steps=5", "student.dropout=0.1", "corpus.held_out=0.2"])
    assert list(kept["reasons"]) == ["stages.0.method"]
    assert Recipe.model_validate(kept).model_dump()["reasons"] == kept["reasons"]


def test_a_number_is_so_many_of_the_teachers_layers_in_recipes_too(tiny_recipe):
    for written in (3, "3", {"shape": 3}):
        found = plan_run(load_recipe(tiny_recipe | {"student": written}))
        assert (str(found.student), found.student_plan.source_layers) == (
            "bert 3x48, 4 heads, FFN 96",
            [1, 2, 4],
        )
    assert StudentSpec(shape=3, initialise={"layers": "first"}).initialise.layers == "first"
    assert StudentSpec(shape="3x48").initialise.layers == "random"
    changed = load_recipe(tiny_recipe | {"student": 3}, ["student.dropout=0.1"]).student
    assert (changed.shape, changed.initialise.layers, changed.dropout) == (3, "ends", 0.1)
    with pytest.raises(LimbeckError, match="would keep 9 of the teacher's layers"):
        plan_run(load_recipe(tiny_recipe | {"student": 9}))


def test_what_a_student_names_itself_is_kept_and_explained_as_it_is(place):
    student = {"shape": 2, "initialise": {"layers": "first"}, "dropout": 0.3}
    recipe = choose_recipe(place / "embedding/teacher-bert", student, place / "text.txt")
    assert recipe["student"] == student
    assert recipe["reasons"]["student"] == "starts from layers 1, 2 of the teacher's 4"
    assert recipe["stages"][0]["method"]["layer_mapping"] == {1: 1}


def test_two_lines_make_a_student(limbeck, place, tmp_path):
    teacher, text, output = place / "embedding/teacher-bert", place / "text.txt", tmp_path / "run"
    asked = ["--teacher", teacher, "--student", 2, "--corpus", text]
    call = ["distill", *asked, "--output", output, "--steps", 2, "--batch-size", 4, "--set", "evaluation.enabled=false"]
    done = limbeck(*call)
    assert done.returncode == 0, done.stderr
    assert "stages.0.method: sentence_embedding: " in done.stderr
    saved = yaml.safe_load((output / "recipe.yaml").read_text())
    assert list(saved["reasons"]) == ["student", "stages.0.method", "corpus", "corpus.held_out"], (
        "the steps are the user's"
    )
    assert saved["stages"][0]["training"]["max_steps"] == 2
    assert limbeck.json("recipe", *asked)["reasons"].items() > saved["reasons"].items()


def test_the_same_from_python(place, tmp_path):
    asked = {"teacher": place / "masked_lm/teacher-bert", "student": 2, "corpus": place / "text.txt"}
    small = ["stages.0.training.max_steps=1", "evaluation.enabled=false", "stages.0.training.bf16=false"]
    result = limbeck.distill(overrides=small, **asked, output=tmp_path / "run")
    assert json.loads((result.student / "config.json").read_text())["num_hidden_layers"] == 2
    again = limbeck.distill(overrides=small, **asked, output=tmp_path / "run", resume=True)
    assert again.record == result.record, "it is not trained anew"
    assert limbeck.distill(output=tmp_path / "run", resume=True).record == result.record, "by its own recipe"
    with pytest.raises(RecipeError, match="Without a recipe, .* needed too: student, output;"):
        limbeck.distill(teacher=asked["teacher"], corpus=asked["corpus"])


@pytest.fixture(scope="module")
def reviews(place):
    """A table whose columns have other names than the usual ones, and are not the first of their kind."""
    rows = [(n, "the model", n % 3, "it is", n % 2) for n in range(20)]
    path = place / "reviews.csv"
    lines = ["id,review,stars,title,label", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines))
    return path


COLUMNS = {"text_column": "review", "label_column": "stars"}


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        (COLUMNS, ()),
        ({}, ("corpus.text_column=review", "corpus.task.label_column=stars")),
        ({"text_column": "title"}, ("corpus.text_column=review", "corpus.task.label_column=stars")),
        ({"corpus": {"text_column": "review", "task": {"kind": "classification", "label_column": "stars"}}}, ()),
    ],
)
def test_named_columns_are_read_before_anything_is_refused(place, reviews, options, overrides):
    options = {"teacher": str(place / "classification/teacher-bert"), "student": 2, "corpus": [str(reviews)], **options}
    if isinstance(options["corpus"], dict):
        options["corpus"] = {"sources": [str(reviews)], **options["corpus"]}
    plan = limbeck.validate(overrides=overrides, **options)
    corpus = plan.recipe.corpus
    assert (corpus.text_column, corpus.task.kind, corpus.task.label_column) == ("review", "classification", "stars")


@pytest.mark.parametrize("method", ["output_distribution", "mlkd_bert", "hidden_states"])
def test_beside_a_method_rows_of_a_named_label_get_the_task_of_the_teacher(place, reviews, method):
    options = {"teacher": str(place / "classification/teacher-bert"), "student": 2, "corpus": [str(reviews)], **COLUMNS}
    chosen_task = limbeck.validate(**options).recipe.corpus.task
    plan = limbeck.validate(**options, method=method)
    assert plan.recipe.corpus.task == chosen_task and plan.recipe.corpus.text_column == "review"
    assert plan.stages[0].spec.method["name"] == method
    columns = ("corpus.text_column=review", "corpus.task.label_column=stars")
    plan = limbeck.validate(**{key: options[key] for key in ("teacher", "student", "corpus")}, method=method,
                            overrides=columns)  # fmt: skip
    assert plan.recipe.corpus.task == chosen_task
    # A mistake in the method is told before one in the rows, and a column that is missing by its name.
    with pytest.raises(LimbeckError, match=r"^stages\.0\.method: Unknown method 'tinybertt'\. Did you mean 'tinybert'"):
        limbeck.validate(**options, method="tinybertt")
    with pytest.raises(LimbeckError, match="has no column 'rating'; it has id, label, review"):
        limbeck.validate(**options | {"label_column": "rating"}, method=method)


@pytest.mark.parametrize("corpus", ["reviews.csv", "task.yaml", "mnli"])
def test_a_mistake_in_the_method_is_told_alone(place, reviews, monkeypatch, corpus):
    monkeypatch.chdir(place)
    task = {"name": "mine", "type": "classification", "columns": {"text": "review", "label": "stars"}}
    (place / "task.yaml").write_text(yaml.safe_dump({**task, "files": {"train": reviews.name}}))
    options = {"teacher": "classification/teacher-bert", "student": 2, "corpus": corpus, "method": "tinybertt"}
    with pytest.raises(LimbeckError) as caught:
        limbeck.validate(**options)
    assert str(caught.value).startswith("stages.0.method: Unknown method 'tinybertt'")
    assert not caught.value.mistakes


def test_beside_a_method_only_one_that_teaches_scores_gives_rows_without_a_named_label_a_task(place):
    options = {"teacher": str(place / "classification/teacher-bert"), "student": 2, "corpus": str(place / "pairs.tsv")}
    task = limbeck.validate(**options, method="output_distribution").recipe.corpus.task
    assert (task.kind, task.label_column, task.pair_column) == ("classification", "label", "sentence2")
    options["corpus"] = str(place / "text.txt")
    task = limbeck.validate(**options, method="output_distribution").recipe.corpus.task
    assert (task.kind, task.labelled) == ("classification", False)
    assert limbeck.validate(**options, method="hidden_states").recipe.corpus.task is None
    ranking = {"teacher": str(place / "regression/teacher-bert"), "corpus": str(place / "queries.jsonl")}
    assert limbeck.validate(**options | ranking, method="reranker").recipe.corpus.task.kind == "ranking"


def test_the_task_of_a_named_label_may_be_set_as_a_value(place, reviews):
    options = {"teacher": str(place / "encoder/teacher-bert"), "student": 2, "corpus": [str(reviews)], **COLUMNS}
    plan = limbeck.validate(**options, method="hidden_states", overrides="corpus.task.kind=classification")
    assert (plan.recipe.corpus.task.kind, plan.recipe.corpus.task.label_column) == ("classification", "stars")


def test_columns_that_are_missing_name_those_that_are_there(place, reviews):
    options = {"teacher": str(place / "classification/teacher-bert"), "student": 2, "corpus": [str(reviews)]}
    with pytest.raises(LimbeckError, match=r"has id, label, review, stars, title; give .*name the columns"):
        limbeck.validate(**options)


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ({**COLUMNS, "label_column": "rating"}, "rating"),
        ({**COLUMNS, "text_column": "reviewx"}, "reviewx"),
        ({**COLUMNS, "text_column": "text"}, "text"),
        ({"corpus": {"text_column": "review", "task": {"label_columns": ["stars", "moons"]}}}, "moons"),
    ],
)
def test_a_named_column_that_is_missing_is_refused_by_its_name(place, reviews, columns, missing):
    options = {"teacher": str(place / "classification/teacher-bert"), "student": 2, "corpus": [str(reviews)], **columns}
    if isinstance(options["corpus"], dict):
        options["corpus"] = {"sources": [str(reviews)], **options["corpus"]}
    message = rf"reviews.csv' has no column '{missing}'; it has id, label, review, stars, title\.$"
    with pytest.raises(LimbeckError, match=message):
        limbeck.validate(**options)


def test_a_second_text_and_fixed_columns_may_be_named(place, reviews):
    pairs = choose_rows_of(place, reviews, {"text_column": "review", "task": {"pair_column": "title"}})
    assert (pairs["text_column"], pairs["task"]["pair_column"]) == ("review", "title")
    (place / "words.jsonl").write_text('{"words": ["the"], "ner": ["O"]}\n')
    keys = {"task": {"tokens_column": "words", "tags_column": "ner"}}
    assert choose_rows_of(place, place / "words.jsonl", keys, "token_classification")["task"]["kind"]


def choose_rows_of(place, rows, keys, head="classification"):
    return choose_recipe(place / head / "teacher-bert", 2, rows, columns=keys)["corpus"]


def test_the_column_of_text_without_labels_is_named_by_the_same_option(place, reviews):
    options = {"teacher": str(place / "encoder/teacher-bert"), "student": 2, "corpus": [str(reviews)]}
    assert limbeck.validate(**options, text_column="review").recipe.corpus.text_column == "review"
    with pytest.raises(
        LimbeckError, match="label_column stars names the label of rows, but this run has no task"
    ) as error:
        limbeck.validate(**options, **COLUMNS)
    assert "give a teacher that `limbeck finetune` made of these rows" in str(error.value)


@pytest.mark.parametrize("teacher", ["encoder", "classification"])
@pytest.mark.parametrize("method", [None, "minilmv2"])
@pytest.mark.parametrize("corpus", ["text.txt", "texts", "wordnet"])
def test_the_column_of_text_without_columns_is_refused(place, monkeypatch, teacher, method, corpus):
    monkeypatch.chdir(place)
    (place / "texts").mkdir(exist_ok=True)
    shutil.copy(place / "text.txt", place / "texts")
    options = {"teacher": str(place / teacher / "teacher-bert"), "student": 2, "corpus": [corpus]}
    if method is not None:
        options["method"] = method
    recipe = choose_by_options(options)
    refusal = rf"--text-column foo names a column of tables, but this corpus \({corpus}\) has texts without columns"
    with pytest.raises(LimbeckError, match=refusal):
        choose_by_options({**options, "text_column": "foo"})
    if "task" not in recipe["corpus"]:
        with pytest.raises(LimbeckError, match=refusal):
            merge_options(recipe, {"text_column": "foo"})
        shutil.copy(place / "queries.jsonl", place / "other.jsonl")
        merge_options(recipe, {"text_column": "query"}, overrides=["corpus.sources=[other.jsonl]"])


def test_a_student_of_a_fine_tuned_model_is_named_after_the_folder_of_its_fine_tuning(place, tmp_path):
    model = tmp_path / "sst2-teacher" / "model"
    shutil.copytree(place / "embedding" / "teacher-bert", model)
    assert choose_recipe(model, 2, place / "text.txt")["name"].startswith("sst2-teacher-2")
    assert choose_recipe(model.rename(tmp_path / "mine"), 2, place / "text.txt")["name"].startswith("mine-2")


def plan_of(place, method, student):
    recipe = {
        "teacher": {"model": str(place / "embedding/teacher-bert")},
        "student": student,
        "corpus": {"sources": [str(place / "text.txt")], "length": 32},
        "stages": [{"method": method, "training": {"max_steps": 1}}],
    }
    return plan_run(load_recipe(recipe))


def test_a_random_start_says_what_it_costs_and_another_one_nothing(place):
    random = describe_random_start(
        plan_of(place, "minilmv2", {"shape": {"layers": 2, "hidden": 48, "heads": 4, "ffn": 96}}).student_plan
    )
    assert "takes billions of tokens" in random
    assert "teacher's layers (1, 4)" in random
    assert random.endswith("set student.initialise.layers to ends.")
    of_its_own = {"shape": {"layers": 2, "hidden": 24, "heads": 2}, "initialise": {"layers": [2, 4]}}
    assert describe_random_start(plan_of(place, "minilmv2", of_its_own).student_plan) is None
    assert describe_random_start(plan_of(place, "minilmv2", 2).student_plan) is None
    wider = {"shape": {"layers": 2, "hidden": 96, "heads": 4}}
    assert "cannot start from the teacher's layers" in describe_random_start(
        plan_of(place, "minilmv2", wider).student_plan
    )


def test_a_plan_says_which_layers_learn_from_others_than_they_start_from(place):
    method = {"name": "hidden_states", "mapping": "uniform"}
    lines = plan_of(place, method, {"shape": 2}).summary()
    assert lines["layers of stage 1"].startswith("layer 1 starts from the teacher's 1 and learns from its 2, since")
    agreeing = plan_of(place, method, {"shape": 2, "initialise": {"layers": "uniform"}}).summary()
    assert "layers of stage 1" not in agreeing
