"""Queries that look for their documents, in vectors of their own model and of the teacher, whole and cut."""

import json
import random
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score
from torch.nn import functional

import limbeck
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators import sentence_vectors
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.evaluators.prepared_task import PreparedTask
from limbeck.evaluation.plan.request import EvaluationRequest
from limbeck.evaluation.run.evaluation import run_evaluation
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.registry import KINDS
from limbeck.models import inference
from limbeck.models.inference import encode
from limbeck.models.loading import load_model
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentences import LIBRARY_CONFIG, SentencePooling
from limbeck.models.tokenizers import load_tokenizer
from tests.support.models import make_teacher
from tests.support.tasks import WORDS

PROMPTS = {"query": "the question is ", "passage": "text of it is "}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A task of 30 queries and 40 documents, and three models: a teacher with prompts, and students of two widths."""
    place, draw = tmp_path_factory.mktemp("retrieval"), random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(40)]
    rows = [{"q": " ".join(text.split()[::2]), "d": text} for text in texts[:30]]
    rows += [{"q": rows[0]["q"], "d": texts[5]}, {"q": rows[1]["q"], "d": [texts[7], texts[9]], "label": [2, 0]}]
    named = [{"_id": str(number), "text": text} for number, text in enumerate(texts)]
    number_of = {text: str(number) for number, text in enumerate(texts)}
    for row in rows:
        row["d"] = [number_of[text] for text in row["d"]] if isinstance(row["d"], list) else number_of[row["d"]]
    task = {"name": "search", "type": "retrieval", "columns": {"query": "q", "documents": "d"}}
    files = {"files": {"test": "rows.jsonl"}, "documents": "corpus.jsonl"}
    (place / "search.yaml").write_text(yaml.safe_dump(task | files))
    scored = [{"a": texts[n], "b": texts[n + 9], "label": n} for n in range(9)]
    for name, lines in (("rows", rows), ("corpus", named), ("pairs", scored)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pairs = {"name": "pairs", "type": "similarity", "columns": {"text": "a", "pair": "b"}}
    (place / "pairs.yaml").write_text(yaml.safe_dump(pairs | {"files": {"test": "pairs.jsonl"}}))
    sizes = {"layers": 1, "heads": 2, "ffn": 16}
    for seed, (name, hidden) in enumerate((("teacher", 16), ("student", 16), ("narrow", 8))):
        model = make_teacher(place / f"of-{name}", "bert", seed=seed, hidden=hidden, **sizes).rename(place / name)
        prompts = PROMPTS if name == "teacher" else {}
        write_sentence_transformers_files(
            model, width=hidden, pooling="mean", normalize=True, max_length=64,
            like=SentencePooling("mean", True, 64, prompts=prompts),
        )  # fmt: skip
    return place


@pytest.fixture(scope="module")
def evaluated(folder):
    names = [str(folder / name) for name in ("student", "narrow")]
    tasks = f"{folder / 'search.yaml'},{folder / 'pairs.yaml'}"
    asked = {"teacher": folder / "teacher", "as_is": True, "overrides": ["widths=[12, 4]"]}
    return limbeck.evaluate(names, tasks, output=folder / "out", **asked)


def test_a_metric_that_a_task_names_later_runs_its_cells_again(folder, tmp_path):
    for name in ("rows.jsonl", "corpus.jsonl"):
        shutil.copy(folder / name, tmp_path)
    task = yaml.safe_load((folder / "search.yaml").read_text())
    found = {}
    for metric in ("mrr_at_10", "ndcg_at_10"):
        (tmp_path / "search.yaml").write_text(yaml.safe_dump(task | {"metric": metric}))
        evaluated = limbeck.evaluate(
            [str(folder / "student")], str(tmp_path / "search.yaml"), output=tmp_path / "out", as_is=True
        )
        figure = evaluated.summary["models"][0]["columns"]["search"]
        assert figure["mean"] == figure["metrics"][metric]["mean"]
        found[metric] = figure["mean"]
    assert found["mrr_at_10"] != found["ndcg_at_10"]


def test_a_student_that_gives_all_texts_one_vector_is_scored_and_has_no_agreement(folder, tmp_path):
    student = shutil.copytree(folder / "student", tmp_path / "student")
    model = load_model(str(student))
    norm = model.encoder.layer[-1].output.LayerNorm
    torch.nn.init.zeros_(norm.weight)
    torch.nn.init.ones_(norm.bias)
    model.save_pretrained(student)
    tasks = f"{folder / 'search.yaml'},{folder / 'pairs.yaml'}"
    found = limbeck.evaluate([str(student)], tasks, output=tmp_path / "out", teacher=folder / "teacher", as_is=True)
    _, of_student = found.summary["models"]
    assert found.failed == 0
    for column in ("search", "pairs"):
        assert "agreement" not in of_student["columns"][column]["metrics"]
    assert of_student["columns"]["search"]["mean"] > 0 and of_student["columns"]["pairs"]["mean"] == 0


def test_a_model_is_loaded_once_for_all_splits_and_the_teacher_once_for_all_students(folder, tmp_path, monkeypatch):
    shutil.copy(folder / "pairs.jsonl", tmp_path / "a.jsonl")
    lines = (folder / "pairs.jsonl").read_text().splitlines()
    (tmp_path / "b.jsonl").write_text("\n".join(lines[::-1][:7]))
    task = yaml.safe_load((folder / "pairs.yaml").read_text())
    (tmp_path / "pairs.yaml").write_text(yaml.safe_dump(task | {"files": {"test": "a.jsonl", "more": "b.jsonl"}}))
    loaded = []
    original = sentence_vectors.load_reader

    def loading(name, **options):
        loaded.append(name)
        return original(name, **options)

    monkeypatch.setattr(sentence_vectors, "load_reader", loading)
    names = [str(folder / name) for name in ("teacher", "student", "narrow")]
    found = limbeck.evaluate(
        names[1:], str(tmp_path / "pairs.yaml"), output=tmp_path / "out", teacher=names[0], as_is=True
    )
    assert found.failed == 0 and len(found.summary["columns"]) == 2
    assert loaded == names
    assert sentence_vectors._load_once.cache_info().currsize == 0, "no model stays on the device"


def reports_of_cells(folder, output, student):
    """The reports of an evaluation of a student and its teacher on a retrieval and on pairs."""
    reports = []
    request = EvaluationRequest(
        models=(str(folder / student),),
        tasks=f"{folder / 'search.yaml'},{folder / 'pairs.yaml'}",
        output=output,
        teacher=str(folder / "teacher"),
        as_is=True,
    )
    run_evaluation(request, lambda *now: reports.append(now))
    return reports


def test_the_share_of_the_text_that_is_read_moves_inside_a_cell(folder, tmp_path, monkeypatch):
    # 30 queries and 40 documents are 18 batches.
    monkeypatch.setattr(inference, "encode", partial(inference.encode, batch_size=4))
    reports = reports_of_cells(folder, tmp_path, "student")
    shares = [share for share, _, _ in reports]
    assert shares == sorted(shares) and shares[-1] == 1
    reading = [report for report in reports if "sentence vectors" in report[1]]
    assert {count.unit for _, _, count in reading} == {"tokens"}
    of_first_cell = [(share, what) for share, what, _ in reading if what.startswith("measurement 1 of 4: ")]
    assert len({share for share, _ in of_first_cell}) == len(of_first_cell) == 19
    assert all(what.endswith(": sentence vectors") for _, what in of_first_cell), "one percentage, that of all cells"
    assert any(what.endswith(": search") for _, what, _ in reports)
    assert not any("of the teacher" in what for _, what, _ in reading), "they are kept from its own cell"

    # The cells of the teacher are finished, so that its vectors are made again in those of the next student.
    again = reports_of_cells(folder, tmp_path, "narrow")
    shares = [share for share, _, _ in again]
    assert shares == sorted(shares) and shares[-1] == 1
    assert sum("sentence vectors of the teacher" in what for _, what, _ in again) > 15


def test_a_models_own_widths_are_scored_of_all_unless_others_are_asked_for(folder, tmp_path):
    own = shutil.copytree(folder / "student", tmp_path / "own")
    config = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [4, 12, 16]}))

    def columns(place, *overrides):
        asked = {"as_is": True, "output": tmp_path / place, "overrides": [*overrides]}
        found = limbeck.evaluate([str(own), str(folder / "narrow")], str(folder / "pairs.yaml"), **asked).summary
        return [[*model["columns"]] for model in found["models"]]

    assert columns("unset") == [["pairs", "pairs@12", "pairs@4"], ["pairs", "pairs@4"]]
    assert columns("none", "widths=[]") == [["pairs"]] * 2
    assert columns("other", "widths=[7]") == [["pairs", "pairs@7"]] * 2
    with pytest.raises(limbeck.LimbeckError, match=r"widths.* is 'wide'; give a list"):
        columns("wrong", "widths=wide")


def vectors(folder, name, texts, prompt=""):
    place = folder / name
    return encode(load_model(place), load_tokenizer(place), [prompt + text for text in texts], max_length=256)


def by_definition(queries, documents, relevance):
    """The means of nDCG, reciprocal rank and recall at 10, a query after the other."""
    scores = functional.cosine_similarity(queries[:, None].double(), documents[None].double(), dim=-1).numpy()
    order = (-scores).argsort(1)[:, :10]
    places = [np.flatnonzero(gains[first] > 0) for gains, first in zip(relevance, order, strict=True)]
    return {
        "ndcg_at_10": ndcg_score(relevance, scores, k=10),
        "mrr_at_10": np.mean([1 / (1 + found[0]) if len(found) else 0 for found in places]),
        "recall_at_10": np.mean(
            [len(found) / (gains > 0).sum() for found, gains in zip(places, relevance, strict=True)]
        ),
    }


def test_every_column_by_its_definition(folder, evaluated):
    rows = load_task(str(folder / "search.yaml"), data=None).splits["test"]
    texts, queries = (
        list(dict.fromkeys(row.pair for row in rows)),
        list(dict.fromkeys(row.text for row in rows if row.text)),
    )
    assert (len(queries), len(texts)) == (30, 40)
    relevance = np.zeros((30, 40))
    for row in rows:
        if row.text:
            relevance[queries.index(row.text), texts.index(row.pair)] = row.label
    theirs = vectors(folder, "teacher", texts, PROMPTS["passage"])
    columns = {model["name"].rsplit("/", 1)[1]: model["columns"] for model in evaluated.summary["models"]}
    for name, prompts in (("teacher", PROMPTS.values()), ("student", ("", "")), ("narrow", ("", ""))):
        ours, own = (vectors(folder, name, of, each) for of, each in zip((queries, texts), prompts, strict=True))
        for width in (16, 12, 4):
            for documents, suffix in ((own, ""), (theirs, "@teacher")):
                key = f"search{'' if width == 16 else f'@{width}'}{suffix}"
                if name == "narrow" and (width == 12 or suffix):
                    assert key not in columns[name]
                    continue
                wanted = by_definition(ours[:, :width], documents[:, :width], relevance)
                metrics = columns[name][key]["metrics"]
                assert {metric: metrics[metric]["mean"] / 100 for metric in wanted} == pytest.approx(wanted), (
                    name,
                    key,
                )
        if name != "teacher":
            cosines = [
                (x @ y.T).flatten()
                for x, y in ((ours, own), (vectors(folder, "teacher", queries, PROMPTS["query"]), theirs))
            ]
            metrics = columns[name]["search"]["metrics"]
            # Cosines that differ in their last bits alone are ranked differently on other processors.
            assert metrics["agreement"]["mean"] == pytest.approx(100 * spearmanr(*cosines).statistic, abs=0.01)
            assert "agreement" in columns[name]["pairs@4"]["metrics"]
            assert "agreement" not in columns[name].get("search@teacher", {}).get("metrics", {})
    student = next(model for model in evaluated.summary["models"] if model["name"].endswith("student"))
    share = columns["student"]["search@4@teacher"]["mean"] / columns["teacher"]["search@4@teacher"]["mean"]
    assert student["retention"]["search@4@teacher"] == pytest.approx(100 * share)
    assert set(columns["narrow"]) == {"search", "search@4", "pairs", "pairs@4"}


def test_what_is_left_out_is_said_and_columns_are_titled(folder, evaluated):
    assert [column["title"] for column in evaluated.summary["columns"]][:3] == [
        "search", "search, asymmetric", "search, 12 components",
    ]  # fmt: skip
    notes, narrow, teacher = evaluated.summary["notes"], folder / "narrow", folder / "teacher"
    assert f"search: not asymmetric: the vectors of '{narrow}' have 8 components, and those of '{teacher}' 16" in notes
    assert f"search, asymmetric: queries of each model, and documents of '{teacher}'" in notes
    assert f"search: not cut to 12: the vectors of '{narrow}' have 8 components" in notes
    assert "search test: 30 queries, 40 documents" in notes


def test_cells_are_of_their_teacher_and_are_kept(folder, evaluated):
    results = ResultsFile(folder / "out")
    before = results.read()
    asked = {"as_is": True, "overrides": ["widths=[12, 4]"], "output": folder / "out"}
    student, task = str(folder / "student"), str(folder / "search.yaml")
    limbeck.evaluate([student], task, teacher=folder / "teacher", **asked)
    assert results.read() == before
    alone = limbeck.evaluate([student], task, **asked)
    assert len(results.read()) == len(before) + 1
    assert [column["key"] for column in alone.summary["columns"]] == ["search", "search@12", "search@4"]
    (cell,) = (cell for cell in before if cell.model.endswith("teacher") and cell.task == "search")
    assert cell.settings["prompts"] == [PROMPTS["query"], PROMPTS["passage"]] and cell.rows["test"] == 43


def test_cells_are_of_the_prompts_of_both_models(folder, tmp_path):
    tasks, config = f"{folder / 'search.yaml'},{folder / 'pairs.yaml'}", folder / "teacher" / LIBRARY_CONFIG
    kept, counts = config.read_text(), []
    for said in ({}, {"prompts": {**PROMPTS, "passage": "another "}}, {"default_prompt_name": "query"}):
        config.write_text(json.dumps(json.loads(kept) | said))
        limbeck.evaluate([folder / "student"], tasks, teacher=folder / "teacher", as_is=True, output=tmp_path)
        counts.append(len(ResultsFile(tmp_path).read()))
    config.write_text(kept)
    assert counts == [4, 6, 8]


def test_fewer_queries_look_through_all_documents(folder):
    data = load_task(str(folder / "search.yaml"), data=None)
    rows = KINDS[data.task.kind].draw(data.splits["test"], 7)
    whole, part = (Search.of(of, "t") for of in (data.splits["test"], rows))
    assert len(part.queries) == 7 and set(part.queries) < set(whole.queries)
    assert set(part.documents) == set(whole.documents)


@pytest.mark.parametrize(
    "rows", [[], [LabelledRow("0", "q", "d", 1.0)], [LabelledRow("0", "q", "d", 0.0), LabelledRow("1", "", "e", 0.0)]],
    ids=["none", "one document", "nothing relevant"],
)  # fmt: skip
def test_too_little_to_look_through(rows):
    with pytest.raises(
        CorpusError, match="give at least one query with a relevant document, and at least two documents"
    ):
        Search.of(rows, "search test")


def test_a_retrieval_is_scored_anew_where_the_folder_says_another_length(folder, tmp_path):
    model = shutil.copytree(folder / "student", tmp_path / "student")
    settings = model / "sentence_bert_config.json"
    scores = {}
    for length in (256, 64, 5):
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_seq_length": length}))
        evaluated = limbeck.evaluate(
            [str(model)], str(folder / "search.yaml"), output=tmp_path / "out", as_is=True, overrides=["length=64"]
        )
        scores[length] = evaluated.summary["models"][0]["columns"]["search"]["mean"]
    cells = ResultsFile(tmp_path / "out").read()
    # A folder that reads at least as much as the settings say has the cell of earlier versions.
    assert [cell.settings.get("reader_lengths") for cell in cells] == [None, [5]]
    assert scores[5] != scores[64] == scores[256]


def test_the_tokens_of_texts_are_estimated_by_their_letters_each_text_once():
    rows = [
        LabelledRow(id="0", text="x" * 40, pair="y" * 400, label=1.0),
        LabelledRow(id="1", text="x" * 40, pair="z" * 7, label=0.0),
        LabelledRow(id="2", text="", pair=None, label=0.0),
    ]
    task = SimpleNamespace(name="t", kind="similarity")
    prepared = PreparedTask(task, {"test": rows})
    # 40 letters are 10 tokens and a special one, and 7 letters are one token and a special one.
    assert prepared.count_tokens("test", 64) == 11 + 64 + 2
    assert prepared.count_tokens("test", 5) == 5 + 5 + 2
