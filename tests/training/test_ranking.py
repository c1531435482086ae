"""Queries whose documents are compared: the same steps in micro-batches, after a stop, and by their own students."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch.utils.data import SequentialSampler
from transformers import AutoTokenizer

import limbeck
from limbeck.core.progress_bars import ProgressBar
from limbeck.errors import Interrupted, LimbeckError, RecipeError
from limbeck.evaluation.evaluators.fine_tuning import load_task_model
from limbeck.evaluation.run.kept_weights import save_weights
from limbeck.evaluation.tasks.definition import TaskDefinition
from limbeck.models.heads import head_of, kind_of_value
from limbeck.models.loading import load_config
from limbeck.models.tokenizers import load_tokenizer
from limbeck.option_names import with_arguments
from limbeck.recipe.choosing import choose_recipe
from limbeck.report.quality import comparison_markdown
from limbeck.training.loader import Loader
from limbeck.training.units import count_units
from tests.support.methods import tiny_run, write_queries
from tests.support.models import save_folder, tiny_model
from tests.support.training import assert_equal, at_step, interrupt


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    model = tiny_model("bert", head="ranking", num_labels=1)
    model.classifier.weight.data *= 8
    return save_folder(model, tmp_path_factory.mktemp("teacher") / "bert", "bert")


@pytest.fixture
def recipe(teacher, tmp_path):
    """Two steps of queries of three documents, of which one query has five: two groups."""
    corpus = write_queries(tmp_path / "rows", 17)
    with Path(corpus["sources"][0]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"query": "what?", "positive": "a text", "negatives": ["a", "b", "c", "d"]}) + "\n")
    corpus["task"]["documents_per_query"] = 3

    def make(name, **training):
        options = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1} | training
        made = tiny_run("reranker", teacher, corpus, tmp_path / name, **options)
        made["stages"][0]["method"] = {"name": "reranker", "loss": "margin_mse"}
        return made

    return make


def weights_of(recipe, **options):
    return load_file(limbeck.distill(recipe, **options).student / "model.safetensors")


def test_groups_are_counted_where_documents_can_be_compared():
    groups = torch.tensor([0, 1, 1, 2, 2, 2])
    assert count_units({"attention_mask": torch.ones(6, 4), "groups": groups}).tolist() == [24, 6, 0, 96, 2]


def test_micro_batches_give_the_same_step(recipe, monkeypatch):
    monkeypatch.setattr(Loader, "sample", lambda self, rows: SequentialSampler(rows))
    whole = weights_of(recipe("whole", per_device_train_batch_size=6))
    parts = weights_of(recipe("parts", per_device_train_batch_size=2, gradient_accumulation_steps=3))
    torch.testing.assert_close(parts, whole, rtol=2e-5, atol=2e-6)


def test_a_stopped_run_goes_on_with_the_same_queries(recipe):
    options = {"max_steps": 6, "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 1}
    whole = weights_of(recipe("whole", **options))
    with at_step(5, interrupt), pytest.raises(Interrupted):  # In the second epoch.
        limbeck.distill(recipe("stopped", **options))
    assert_equal(weights_of(recipe("stopped", **options), resume=True), whole)


def test_documents_of_no_query_together_are_refused_before_training(recipe, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"query": f"q {n}", "documents": "a text"}) + "\n" for n in range(9)))
    asked = recipe("pairs")
    asked["corpus"] |= {"sources": [str(path)], "task": {"kind": "ranking"}}
    with pytest.raises(RecipeError, match=r"margin_mse compares the documents of a query, but no query has two"):
        limbeck.validate(asked)
    asked["output"], asked["stages"][0]["method"]["loss"] = str(tmp_path / "mse"), "score_mse"
    assert limbeck.distill(asked).record["stages"][0]["steps"] == 2


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"stages": [{"guard": {"on_out_of_memory": "split"}}]},
            "but splitting a batch that does not fit would separate them",
        ),
        (
            {"corpus": {"task": {"kind": "regression", "pair_column": "b"}}},
            "reranker is made for ranking, not for regr",
        ),
        ({"corpus": {"task": {"kind": "ranking", "document_columns": ["query"]}}}, "give each another column"),
        ({"corpus": {"augment": {"method": "tinybert"}}}, "so that its documents no longer belong together"),
        (
            {"corpus": {"task": {"kind": "ranking", "pair_column": "b"}}},
            "pair_column does not apply to a task of the kind ranking",
        ),
        (
            {"corpus": {"text_column": "b"}},
            "text_column does not apply to ranking, whose columns are named under 'task'",
        ),
    ],
)
def test_what_cannot_be_is_refused(recipe, change, line):
    asked = recipe("refused")
    for key, value in change.items():
        part, given = (asked[key][0], value[0]) if isinstance(value, list) else (asked[key], value)
        part |= given
    with pytest.raises(LimbeckError) as refused:
        limbeck.validate(asked)
    assert line in str(refused.value)


def test_a_prompt_that_is_before_every_text_is_refused(recipe, teacher, tmp_path):
    folder, asked = tmp_path / "teacher", recipe("prompt")
    shutil.copytree(teacher, folder)
    (folder / "modules.json").write_text("[]")
    said = {"model_type": "CrossEncoder", "prompts": {"query": "query: "}, "default_prompt_name": None}
    asked["teacher"]["model"], library = str(folder), folder / "config_sentence_transformers.json"
    library.write_text(json.dumps(said))
    limbeck.validate(asked)
    library.write_text(json.dumps(said | {"default_prompt_name": "query"}))
    with pytest.raises(LimbeckError, match="has the prompt 'query: ' before its texts by default, but limbeck reads"):
        limbeck.validate(asked)


ACTIVATION = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize("layout", ["version 6", "version 4", "version 3", "none"])
def test_a_student_keeps_what_is_done_with_scores(recipe, teacher, tmp_path, layout):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    config = json.loads((teacher / "config.json").read_text())
    folder = tmp_path / "teacher"
    folder.mkdir()
    for path in teacher.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    if layout == "version 6":
        said = {"model_type": "CrossEncoder", "activation_fn": ACTIVATION}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(said))
        module = {
            "idx": 0,
            "name": "0",
            "path": "",
            "type": "sentence_transformers.base.modules.transformer.Transformer",
        }
        (folder / "modules.json").write_text(json.dumps([module]))
        task = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
        task["modality_config"] = {"text": {"method": "forward", "method_output_name": "logits"}}
        (folder / "sentence_bert_config.json").write_text(json.dumps(task))
    elif layout == "version 4":
        config["sentence_transformers"] = {"activation_fn": ACTIVATION, "version": "4.0.1"}
    elif layout == "version 3":
        config["sbert_ce_default_activation_function"] = ACTIVATION
    (folder / "config.json").write_text(json.dumps(config))
    asked = recipe("run")
    asked["teacher"]["model"] = str(folder)
    student = limbeck.distill(asked).student
    pairs = [("who is 1?", "the teacher is 1"), ("who is 1?", "a text")]
    theirs, own = (cross_encoder(str(place), device="cpu") for place in (folder, student))
    wanted = torch.nn.Sigmoid if layout == "none" else torch.nn.Identity
    assert type(own.activation_fn) is type(theirs.activation_fn) is wanted
    assert head_of(load_config(student)) == "ranking"
    with torch.no_grad():
        batch = AutoTokenizer.from_pretrained(student)(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
        logits = own.model(**batch).logits[:, 0]
    torch.testing.assert_close(torch.tensor(own.predict(pairs)), wanted()(logits), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ranking", "regression"])
def test_a_fine_tuned_model_gives_the_scores_themselves(teacher, tmp_path, kind):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    columns = {"columns": {"text": "a", "pair": "b", "label": "c"}} if kind == "regression" else {}
    files = {"train": "a.jsonl", "validation": "b.jsonl"}
    task = TaskDefinition(name="own", type=kind, files=files, **columns).task
    model = load_task_model(str(teacher), task, seed=1)
    assert kind_of_value(model.config) == kind
    save_weights(tmp_path / "kept", model, load_tokenizer(teacher))
    pairs = [("who is 1?", "the teacher is 1"), ("who is 1?", "a text")]
    batch = load_tokenizer(teacher)(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**batch).logits[:, 0]
    found = cross_encoder(str(tmp_path / "kept"), device="cpu").predict(pairs)
    torch.testing.assert_close(torch.tensor(found), logits, rtol=1e-5, atol=1e-6)
    assert logits.abs().max() > 1, "no probability is so large"


def test_a_run_without_development_rows_shows_the_scores_of_its_queries(recipe):
    asked = recipe("scored") | {"evaluation": {"speed": False}}
    asked["corpus"]["held_out"] = 0.3
    result = limbeck.distill(asked)
    printed = str(result)
    assert "Agreement on rows the teacher may have been trained on (Spearman)" in printed
    note = "the student has not seen them, but the teacher may have been trained on them"
    assert note in " ".join(printed.split())
    assert "nDCG@10 by the labels" in printed
    assert "MRR@10 by the labels" in printed
    assert "nDCG@10 of a random order" in printed and "MRR@10 of a random order" in printed
    # A share of the teacher's score needs rows that the teacher has not seen.
    assert "kept" not in printed


def test_a_run_counts_queries_and_stands_beside_a_random_order(recipe, tmp_path, capsys):
    asked = recipe("developed") | {"evaluation": {"speed": False}}
    development = write_queries(tmp_path / "development", 5)
    del asked["corpus"]["held_out"]
    asked["corpus"]["development"] = development["sources"][0]
    result = limbeck.distill(asked, console=Console(width=500))
    # The five development queries repeat queries of the corpus, which are left out.
    assert "Corpus: 13 queries (41 pairs)" in capsys.readouterr().out
    record = json.loads((result.student.parent / "run.json").read_text(encoding="utf-8"))
    text = record["corpus"]
    assert (text["queries"], text["trained_queries"], text["held_out_queries"]) == (18, 13, 5)
    [scores] = record["evaluation"]["development"]
    assert (scores["queries"], scores["rows"], scores["length"]) == (5, 15, 24)
    assert "(few, so the scores are rough); length: 24 tokens; teacher: " in comparison_markdown(record["evaluation"])
    # One relevant document of three, in a random order.
    assert scores["chance"]["mrr_at_10"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert scores["intervals"].keys() == scores["teacher_intervals"].keys() == scores["chance"].keys()
    card = (result.student / "README.md").read_text(encoding="utf-8")
    assert "| ↳ random order | – | 0.611 |" in card
    assert "5 development queries (15 pairs), which were not trained on, gave the scores above." in card


def test_a_fine_tuning_counts_queries_and_draws_them(teacher, tmp_path, monkeypatch):
    for name, queries in (("train", 12), ("held", 6)):
        write_queries(tmp_path / name, queries)
    task = tmp_path / "questions.yaml"
    columns = "columns: {query: query, documents: [positive, negatives]}"
    files = "files: {train: train/queries.jsonl, validation: held/queries.jsonl}"
    task.write_text(f"name: questions\ntype: ranking\n{columns}\n{files}\n")
    settings = ["length=24", "epochs=1", "batch_size=8", "max_train_rows=24", "max_scored_rows=14"]
    said = []
    monkeypatch.setattr(ProgressBar, "__call__", lambda bar, share, what, count=None: said.append(what))
    result = limbeck.finetune(teacher, str(task), output=tmp_path / "run", preset="quick", overrides=settings)
    assert [what.split(": ")[-1] for what in said if "scoring" in what] == ["scoring 4 of 4 queries of questions"]
    [line] = (tmp_path / "run" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    cell = json.loads(line)
    assert (cell["queries"], cell["rows"]) == ({"train": 8, "validation": 4}, {"train": 24, "validation": 12})
    # The size of a split is not told beside the draw of its queries.
    assert [note for note in cell["notes"] if "quer" in note] == [
        "questions train: 8 of 12 queries (24 pairs), drawn",
        "questions validation: 4 of 6 queries (12 pairs), drawn",
    ]
    card = (Path(result.model) / "README.md").read_text(encoding="utf-8")
    assert "| Task | Queries | Metric |" in card and "| questions | 4 (12 pairs) | nDCG@10 |" in card
    assert "- Queries: 8 (24 pairs) of questions" in card


def test_a_ranking_is_read_up_to_one_length_by_all_commands(tmp_path):
    # 200 positions: less than the 256 tokens of a ranking, and more than the 128 of a preset's other rows.
    model = tiny_model("bert", head="ranking", num_labels=1, max_position_embeddings=200)
    teacher = save_folder(model, tmp_path / "teacher", "bert")
    for name in ("train", "held"):
        write_queries(tmp_path / name, 6)
    task = tmp_path / "questions.yaml"
    columns = "columns: {query: query, documents: [positive, negatives]}"
    files = "files: {train: train/queries.jsonl, validation: held/queries.jsonl}"
    task.write_text(f"name: questions\ntype: ranking\n{columns}\n{files}\n")
    assert choose_recipe(teacher, 1, task)["corpus"]["length"] == 200
    limbeck.finetune(teacher, str(task), output=tmp_path / "tuned", preset="quick", overrides=["epochs=1"])
    limbeck.evaluate(teacher, str(task), output=tmp_path / "scores", as_is=True)
    limbeck.evaluate(teacher, str(task), output=tmp_path / "short", as_is=True, overrides=["length=24"])
    lengths = {}
    for name in ("tuned", "scores", "short"):
        [line] = (tmp_path / name / "results.jsonl").read_text(encoding="utf-8").splitlines()
        lengths[name] = json.loads(line)["settings"]["length"]
    assert lengths == {"tuned": 200, "scores": 200, "short": 24}


def test_cut_pairs_are_counted_with_the_way_to_read_more_of_them(teacher, tmp_path):
    write_queries(tmp_path / "held", 2)
    task = tmp_path / "questions.yaml"
    columns = "columns: {query: query, documents: [positive, negatives]}"
    task.write_text(f"name: questions\ntype: ranking\n{columns}\nfiles: {{validation: held/queries.jsonl}}\n")
    result = limbeck.evaluate(teacher, str(task), output=tmp_path / "short", as_is=True, overrides=["length=8"])
    [note] = [note for note in result.evaluation.notes if "cut" in note]
    assert note.startswith("questions validation: 6 query-document pairs cut to 8 tokens (such as 'who is 0?'")
    assert note.endswith("; a greater length reads more of them, with --set length=N (at most 128)")
    assert with_arguments(note).endswith('reads more of them, with overrides="length=N" (at most 128)')
