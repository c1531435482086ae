import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from markdown_it import MarkdownIt

from limbeck.core.markdown import code_block, escape_markdown, inline_code, one_line
from limbeck.core.records import Run, Stage
from limbeck.core.studies import Evaluation
from limbeck.export.exporting import ExportRequest, export_model
from limbeck.methods.composition import Term
from limbeck.models.heads import HEADS
from limbeck.models.streams import StreamKey
from limbeck.report import write_model_card
from limbeck.report.card_parts import find_scores, scores_of, short_name, web_address
from limbeck.report.model_card import (
    budget,
    card_without_run,
    card_writer,
    find_record,
    layer_rows,
    run_problem,
    write_run_cards,
)
from limbeck.training.students import describe_layers
from tests.support.models import make_teacher
from tests.support.reports import card_of, run_record
from tests.support.students import sentence_student

HOSTILE = "a: \"b\" 'c' {d} [e] #f | g ` ``` <script>\n---\n- x: y\n\n# Heading\x00\x1b[31m\u2028{{ 7 * 7 }} & *z*"


def student_scores(summary):
    return scores_of(Path("runs/mine/student"), Evaluation.read(summary))


def test_a_folder_of_sentence_transformers_says_so_and_the_record_gives_the_language(tmp_path: Path):
    (tmp_path / "modules.json").write_text("[]")
    card, text = card_of({**run_record(), "language": "en"}, tmp_path)
    assert (card.data.library_name, card.data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert (card.data.language, card.data.license) == ("en", None)
    assert "secret" not in text and "`wiki`" in text, "paths are shortened"


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_its_code_is_python_and_pools_as_the_folder_says(tmp_path: Path, pooling):
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": %s}' % ("true" if pooling == "cls" else "false")
    )
    _, text = card_of(run_record(), tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        ast.parse(block)
    assert ("hidden[:, 0]" in blocks[1]) == (pooling == "cls")


def test_what_untrained_parameters_hold(tmp_path: Path):
    names = [f"encoder.layer.{layer}.output.dense.weight" for layer in range(20)]
    untrained = {"policy": "teacher", "names": names, "from_teacher": names}
    _, text = card_of({**run_record(), "untrained": untrained}, tmp_path)
    assert "No stage trained 20 of its parameter tensors" in text and "and 8 more modules" in text
    assert "They hold the teacher's values." in text
    _, text = card_of({**run_record(), "untrained": {**untrained, "from_teacher": names[:3]}}, tmp_path)
    assert "3 of them hold the teacher's values" in text
    _, text = card_of({**run_record(), "untrained": {"policy": "random", "names": [], "from_teacher": []}}, tmp_path)
    assert "No stage trained" not in text


def test_any_part_may_be_missing(tmp_path: Path):
    whole = run_record()
    without = [{key: value for key, value in whole.items() if key != name} for name in whole]
    for values in ({}, dict.fromkeys(whole), *without, *({**whole, name: None} for name in whole)):
        card, text = card_of(values, tmp_path)
        assert card.data.tags[:2] == ["distillation", "limbeck"]
        assert "None" not in text and "{{" not in text and "{%" not in text


def hostile(value):
    """Every string of the record, keys of free dicts included, replaced by the hostile one."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(item) for item in value]
    if isinstance(value, dict):
        free = {"final_terms", "versions", "seeds", "timings", "counts"}
        return {
            k: {HOSTILE + name: hostile(item) for name, item in v.items()} if k in free else hostile(v)
            for k, v in value.items()
        }
    return value


def test_hostile_strings_change_nothing_but_themselves(tmp_path: Path):
    for name in ("tame", "wild"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.json").write_text("[]")
    values = {k: v if k == "evaluation" else hostile(v) for k, v in {**run_record(), "language": "en"}.items()}
    card, text = card_of(values, tmp_path / "wild")
    _, tame = card_of(run_record(), tmp_path / "tame")
    assert card.data.base_model is None and card.data.datasets is None
    assert card.data.language == one_line(HOSTILE)
    front = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert list(front) == ["language", "library_name", "pipeline_tag", "tags", "metrics", "model-index"]
    assert "49" not in card.text and "\x1b" not in text and "\x00" not in text

    markdown = MarkdownIt("commonmark").enable("table")

    def shape(card_text):
        tokens = markdown.parse(card_text.split("\n---\n", 1)[1])
        return [token.type for token in tokens if token.type.startswith(("heading", "fence", "table", "tr", "html"))]

    assert shape(text) == shape(tame)
    inline = [child for token in markdown.parse(card.text) for child in token.children or []]
    assert not any(child.type == "html_inline" for child in inline)
    links = [child.attrs["href"] for child in inline if child.type == "link_open"]
    assert links == []


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


def test_paths_are_shortened():
    names = {
        "/home/me/models/bert": "bert", "../shared/data/wiki/": "wiki", r"C:\models\bert": "bert",
        "org/name": "org/name", "package:some-package": "package:some-package", "hub:a/b:c@d": "hub:a/b:c@d",
        "installed-docs": "installed-docs",
    }  # fmt: skip
    assert {name: short_name(name) for name in names} == names


@pytest.mark.parametrize(
    ("dtype", "told"), [("float32", True), ("float16", False), ("bfloat16", False), ("int8", False)]
)
def test_only_exports_in_float32_claim_the_scores_that_were_measured(tmp_path: Path, dtype, told):
    differences = {"texts": 1, "batches": 1, "tokens": 1, "largest": {}, "scale": {}}
    export = {"format": "safetensors", "dtype": dtype, "source": "s", "megabytes": 1.0, "differences": differences}
    summary = evaluation_summary("runs/mine/student")
    path = write_model_card(run_record(), tmp_path, scores=student_scores(summary), export=export)
    text = path.read_text(encoding="utf-8")
    data = ModelCard.load(path).data
    assert (data.eval_results is not None) == told == ("metrics" in data.to_dict())
    assert ("Measured on the float32 student" in text) == (not told)
    assert text.count("Measured on the float32 student") == (0 if told else 2), "above each of the two tables"


def test_scores_of_fewer_rows_than_are_published_name_no_data_set_of_the_hub(tmp_path: Path):
    note = "STS-B validation: 60 rows, but 1500 are published"
    summary = {**evaluation_summary("runs/mine/student"), "notes": [note, "SQuAD train: 5 rows, but 9 are published"]}
    found = scores_of(Path("runs/mine/student"), Evaluation.read(summary))
    assert found.notes == (note,)
    assert found.rows[0].dataset == {"type": "stsb", "name": "STS-B"}
    assert found.rows[1].dataset["type"] == "rajpurkar/squad"
    path = write_model_card(run_record(), tmp_path, scores=found)
    assert f"- {note}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "shown"), [("run", "mine"), ("", "mine"), (None, "mine"), ("of my own", "of my own")]
)
def test_a_student_is_called_by_its_folder_where_nobody_named_it(tmp_path: Path, given, shown):
    student = tmp_path / "mine" / "student"
    student.mkdir(parents=True)
    (tmp_path / "mine" / "run.json").write_text(json.dumps({**run_record(), "name": given}))
    (path,) = write_run_cards({**run_record(), "name": given}, tmp_path / "mine")
    front, text = path.read_text(encoding="utf-8").split("\n---\n", 1)
    assert text.strip().startswith(f"# {shown}\n")
    assert yaml.safe_load(front.removeprefix("---\n"))["model-index"][0]["name"] == shown
    assert find_record(student).name == shown


def test_a_damaged_record_is_told_before_an_export_goes_on_without_it(tmp_path: Path):
    student = tmp_path / "mine" / "student"
    student.mkdir(parents=True)
    assert run_problem(str(student)) is None, "no run"
    (tmp_path / "mine" / "run.json").write_text(json.dumps(run_record()))
    assert run_problem(str(student)) is None
    (tmp_path / "mine" / "run.json").write_text('{"name": "mi')
    problem = run_problem(str(student))
    assert problem is not None and "run.json' is damaged" in problem and "\n" not in problem


def test_the_model_index_is_what_the_hub_makes_and_reads(tmp_path: Path):
    summary = evaluation_summary("runs/mine/student")
    path = write_model_card(run_record(), tmp_path, scores=student_scores(summary))
    index = yaml.safe_load(path.read_text().split("\n---\n")[0].removeprefix("---\n"))["model-index"]
    name, results = model_index_to_eval_results(index)
    assert all(isinstance(result, EvalResult) for result in results)
    again = yaml.safe_load(yaml.safe_dump(eval_results_to_model_index(name, results)))
    assert again == index
    (squad,) = [result for result in results if result.dataset_type == "rajpurkar/squad"]
    assert (squad.task_type, squad.dataset_name, squad.dataset_split) == ("question-answering", "SQuAD", "validation")
    assert (squad.metric_type, squad.metric_value) == ("f1", 0.8)


def evaluation_summary(student: str) -> dict:
    def cell(mean, metric):
        figures = {"mean": mean, "deviation": None, "runs": [mean]}
        return {**figures, "metrics": {metric: figures}}

    def column(task, title, kind, metric, split="validation", detail=False):
        return {"key": task, "title": title, "task": task, "kind": kind, "splits": [split], "detail": detail,
                "metric": metric}  # fmt: skip

    return {
        "preset": "quick",
        "columns": [
            column("stsb", "STS-B", "regression", "pearson"),
            column("squad", "SQuAD", "question_answering", "f1_answer"),
            column("stsb_cosine", "STS-B cosine", "similarity", "spearman"),
            column("own.yaml", "Own", "classification", "accuracy"),
            column("sst2", "SST-2", "classification", "accuracy"),
            column("part", "A part", "classification", "accuracy", detail=True),
        ],
        "models": [
            {"name": "teacher", "columns": {"stsb": cell(90.0, "pearson")}, "retention": {}},
            {"name": student, "retention": {"stsb": 90.0}, "columns": {
                "stsb": cell(81.0, "pearson"), "squad": cell(80.0, "f1_answer"), "part": cell(50.0, "accuracy"),
                "stsb_cosine": cell(70.0, "spearman"), "own.yaml": cell(60.0, "accuracy"),
            }},
        ],
    }  # fmt: skip


def test_scores_of_one_student_among_many():
    summary = evaluation_summary("/elsewhere/runs/mine/student")
    found = scores_of(Path("/here/runs/mine/student"), Evaluation.read(summary))
    assert found is not None and (found.preset, found.teacher) == ("quick", "teacher")
    assert [(row.column.title, row.teacher and row.teacher.mean, row.kept) for row in found.rows] == [
        ("STS-B", 90.0, 90.0), ("SQuAD", None, None), ("STS-B cosine", None, None), ("Own", None, None),
    ]  # fmt: skip
    assert found.rows[0].dataset == {"type": "nyu-mll/glue", "name": "STS-B", "config": "stsb", "split": "validation"}
    assert found.rows[3].dataset == {"type": "own.yaml", "name": "Own"}
    assert scores_of(Path("/here/runs/other/student"), Evaluation.read(summary)) is None
    assert scores_of(Path("teacher"), Evaluation.read(summary)).teacher == ""


def test_scores_are_looked_for_in_the_run_and_in_the_comparison(tmp_path: Path):
    student = tmp_path / "runs" / "a" / "student"
    student.mkdir(parents=True)
    assert find_scores(student) is None
    for place in (tmp_path / "evaluation", student.parent / "scores"):
        place.mkdir()
        (place / "evaluation_table.json").write_text(json.dumps(evaluation_summary(str(student))))
        assert find_scores(student) is not None
        (place / "evaluation_table.json").write_text("{}")
        assert find_scores(student) is None


def test_layers_are_those_of_the_record_else_of_the_terms():
    layers = [{"student": [3], "teacher": [10], "terms": ["query-query"]}, {"student": [3], "teacher": [10],
              "terms": ["value-value"]}, {"student": [1], "teacher": [1, 2], "terms": ["layers"]}]  # fmt: skip
    assert layer_rows(Stage.read({"layers": layers})) == [
        ("3", "10", "query-query, value-value"),
        ("1", "1, 2", "layers"),
    ]
    terms = {"hidden_1_7": 0.1, "attention_1_7": 0.2, "hidden_0_0": 0.3, "soft_labels": 0.4}
    assert layer_rows(Stage.read({"final_terms": terms})) == [("1", "7", "hidden, attention"), ("0", "0", "hidden")]
    for nothing in ({}, {"layers": None}, {"layers": "x", "final_terms": None}, {"layers": [1, {"student": 3}]}):
        assert layer_rows(Stage.read(nothing)) == []


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


def test_the_budget_is_on_the_device_that_trained():
    stages = [{"steps": 1000, "tokens": 2_000_000, "seconds": 7000, "device": "cuda:0"}, {"seconds": 200.0}]
    hardware = {"device": "An accelerator", "cpu": "A processor"}
    run = Run.read({"hardware": hardware, "stages": stages})
    assert budget(run) == "1,000 steps, 2.00 M tokens, 2.0 hours of training on An accelerator"
    assert budget(Run.read({"stages": [{"steps": 5, "seconds": 6.0}]})) == "5 steps, 6.0 seconds of training"
    assert budget(Run.read({"hardware": hardware})) == ""


def run_snippets(text: str, folder: Path, capsys) -> list[str]:
    """Run every Python block of a card on a folder, and return what each printed."""
    printed = []
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        capsys.readouterr()
        exec(block.replace("path/to/student", str(folder)), {})
        printed.append(capsys.readouterr().out)
    assert printed
    return printed


@pytest.mark.parametrize("head", [None, *HEADS])
def test_the_code_of_a_head_runs(tmp_path: Path, head, capsys):
    labels = {"classification": {"num_labels": 3}, "regression": {"num_labels": 1}}.get(head, {})
    student = make_teacher(tmp_path, "bert", head=head, layers=1, **labels)
    _, text = card_of({**run_record(), "student": {"head": head}}, student)
    (printed,) = run_snippets(text, student, capsys)
    assert printed or head is None, "without a head the hidden states are left in a variable"


def test_the_code_of_a_sentence_encoder_runs(tmp_path: Path, capsys):
    student = sentence_student(tmp_path)
    _, text = card_of(run_record(), student)
    printed, _ = run_snippets(text, student, capsys)
    assert printed.startswith(("[[1", "[[0.99"))


@pytest.mark.parametrize("head", [None, "sentence", "token_classification", *HEADS])
def test_the_code_of_a_graph_runs(tmp_path: Path, head, capsys):
    labels = {"classification": {"num_labels": 3}, "regression": {"num_labels": 1}}.get(head, {})
    if head == "sentence":
        student = sentence_student(tmp_path)
    else:
        student = make_teacher(tmp_path, "bert", head=head, layers=1, **labels)
    request = ExportRequest(str(student), "onnx", output=tmp_path / "out")
    done = export_model(request, finish=card_writer(str(student)))
    (printed,) = run_snippets((done.folder / "README.md").read_text(), done.folder, capsys)
    assert printed


def test_a_model_of_no_run_keeps_its_own_card(tmp_path: Path):
    student = sentence_student(tmp_path)
    (student / "README.md").write_text("---\nlicense: mit\ntags: [mine]\n---\n# My model\n\nIt is mine.\n")
    request = ExportRequest(str(student), "onnx", output=tmp_path / "out")
    done = export_model(request, finish=card_writer(str(student)))
    card = ModelCard.load(done.folder / "README.md")
    assert (card.data.license, card.data.tags) == ("mit", ["mine", "onnx"])
    assert card.text.index("It is mine.") < card.text.index("## This export")
    index = [{"name": "m", "results": [{"task": {"type": "x"}, "dataset": {"type": "d", "name": "d"},
                                        "metrics": [{"type": "accuracy", "value": 0.9}]}]}]  # fmt: skip
    front = yaml.safe_dump({"license": "mit", "metrics": ["accuracy"], "model-index": index})
    (student / "README.md").write_text(f"---\n{front}---\n# My model\n")
    for dtype, told in (("float32", True), ("int8", False), ("float16", False)):
        (tmp_path / "README.md").write_text(card_without_run(str(student), {**done.record, "dtype": dtype}))
        data = ModelCard.load(tmp_path / "README.md").data
        assert data.license == "mit" and (data.eval_results is not None) == told == ("metrics" in data.to_dict())
    hub = card_without_run(
        "owner/name", {**done.record, "dtype": "int8", "format": "onnx-int8", "source": "owner/name"}
    )
    front = yaml.safe_load(hub.split("---\n")[1])
    assert (front["base_model"], front["base_model_relation"]) == ("owner/name", "quantized")
    assert front["tags"] == ["onnx", "int8"]


def test_assistants_have_cards_of_their_own(tmp_path: Path):
    student = make_teacher(tmp_path, "bert", layers=1).rename(tmp_path / "student")
    (tmp_path / "stages" / "1-assistant").mkdir(parents=True)
    own = make_teacher(tmp_path, "bert", layers=2).rename(tmp_path / "stages" / "1-assistant" / "student")
    values = run_record()
    teacher = {"teacher": "some-org/another-teacher", "teacher_facts": {"hub_id": "some-org/another-teacher"}}
    values["stages"][0] |= {"name": "assistant", "student": {"shape": "6x384"}, **teacher}
    (tmp_path / "run.json").write_text(json.dumps(values))
    cards = write_run_cards(values, tmp_path)
    assert cards == [student / "README.md", own / "README.md"]
    card = ModelCard.load(own / "README.md")
    assert card.data.base_model == "some-org/another-teacher" and card.data.eval_results is None
    assert card.text.strip().startswith("# quickstart, assistant")
    assert "6x384" in card.text and "minilmv2" in card.text
    assert "sentence\\_embedding" not in card.text, "a stage of the other student"
    assert "Its quality was not measured" in card.text
    assert find_record(own).name == "quickstart, assistant" and find_record(student).name == "quickstart"
    assert find_record(tmp_path) is None
