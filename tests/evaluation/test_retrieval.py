"""The task `retrieval`: a folder in BEIR's layout, scored by a definition of its own; ids, routers, and refusals."""

import json
import random

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertForMultipleChoice

import limbeck
from limbeck.errors import LimbeckError
from limbeck.evaluation.run.results_file import ResultsFile
from limbeck.models import loading, tokenizers
from limbeck.models.folder_files import MODULES
from limbeck.models.heads import model_class
from limbeck.models.inference import encode
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentences import LIBRARY_CONFIG, SentencePooling
from tests.support.models import make_teacher
from tests.support.tasks import WORDS

SIZES = {"layers": 1, "hidden": 16, "heads": 2, "ffn": 16}
PROMPTS = {"query": "the question is ", "passage": "text of it is "}
LONGEST = 12


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """150 documents, two of them with one text and one without any; 12 queries, two of one text, one a document."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(0)
    (folder / "qrels").mkdir()
    texts = {f"d{n}": " ".join(draw.choices(WORDS, k=draw.randint(3, 25))) for n in range(147)}
    texts |= {"twin": texts["d3"], "empty": "", "q9": "we are the student"}
    queries = {f"q{n}": " ".join(texts[f"d{n}"].split()[::2]) for n in range(11)}
    queries |= {"q8": queries["q7"], "q9": texts["q9"], "unasked": "the word"}
    relevant = {name: {f"d{n}": draw.choice([1, 2])} for n, name in enumerate(queries) if name != "unasked"}
    relevant["q0"] |= {"d50": 1, "d51": 0, "empty": 1}
    relevant["q1"] = {"d1": 0}
    titled = [{"_id": own, "title": "", "text": text} for own, text in texts.items()]
    for row in titled[20:40]:
        row["title"], row["text"] = row["text"].split(" ", 1)
    write_lines(folder / "corpus.jsonl", titled)
    write_lines(folder / "queries.jsonl", [{"_id": own, "text": text} for own, text in queries.items()])
    rows = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{n}" for q in relevant for d, n in relevant[q].items())]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows) + "\n")
    return folder, texts, queries, relevant


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A teacher with prompts, a student, and a model whose vectors are compared by their inner products."""
    place = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("teacher", "student", "dot")):
        model = make_teacher(place / f"of-{name}", "bert", seed=seed, **SIZES).rename(place / name)
        like = SentencePooling("mean", name != "dot", LONGEST, prompts=PROMPTS if name == "teacher" else {})
        kind = {"width": 16, "pooling": "mean", "normalize": name != "dot", "max_length": LONGEST}
        write_sentence_transformers_files(model, **kind, like=like)
    config = place / "dot" / LIBRARY_CONFIG
    config.write_text(json.dumps({"similarity_fn_name": "dot"}))
    return place


def vectors(place, texts, prompt=""):
    model, tokenizer = loading.load_model(place), tokenizers.load_tokenizer(place)
    return encode(model, tokenizer, [prompt + text for text in texts], max_length=LONGEST, normalize=False).double()


def by_definition(scores, texts, queries, relevant):
    """Values of queries, each by a sorted list of all documents; equal ones in every order that can matter."""
    figures = []
    for name, own in relevant.items():
        found = dict(zip(texts, scores[[*queries].index(name)].tolist(), strict=True))
        if name == "q9":
            del found["q9"]
        gains = sorted(own.values(), reverse=True)
        best = sum(gain / np.log2(2 + place) for place, gain in enumerate(gains[:10]))
        orders = [sorted(found, key=lambda each, sign=sign: (-round(found[each], 9), sign * own.get(each, 0)))
                  for sign in (1, -1)]  # fmt: skip
        ndcg = [sum(own.get(each, 0) / np.log2(2 + place) for place, each in enumerate(order[:10])) for order in orders]
        ranks = [place for place, each in enumerate(orders[0][:10], start=1) if own.get(each, 0)]
        wanted = [each for each, gain in own.items() if gain]
        recalls = [np.mean([each in orders[0][:most] for each in wanted]) if wanted else 0 for most in (10, 100)]
        # Two documents of one text change places; no more are equal here.
        figures.append((np.mean(ndcg) / best if best else 0, 1 / ranks[0] if ranks else 0, *recalls))
    names = ("ndcg_at_10", "mrr_at_10", "recall_at_10", "recall_at_100")
    return dict(zip(names, np.transpose(figures), strict=True))


def means(values):
    return {metric: np.mean(values_of_queries) for metric, values_of_queries in values.items()}


def scores_of(evaluated, name, column="retrieval"):
    (model,) = (each for each in evaluated.summary["models"] if each["name"].endswith(name))
    metrics = model["columns"][column]["metrics"]
    return {metric: figure["mean"] / 100 for metric, figure in metrics.items() if metric != "agreement"}


@pytest.fixture(scope="module")
def evaluated(data, models, tmp_path_factory):
    names = [models / "student", models / "dot", router(models)]
    return limbeck.evaluate(
        names, "retrieval", data=data[0], teacher=models / "teacher", output=tmp_path_factory.mktemp("out")
    )


def router(models):
    """The student for queries and the teacher for documents, in one folder."""
    folder = models / "router"
    if not folder.exists():
        folder.mkdir()
        (folder / MODULES).write_text(json.dumps([{"type": "sentence_transformers.models.Router", "path": ""}]))
        for role, name in (("query", "student"), ("document", "teacher")):
            (folder / role).symlink_to(models / name, target_is_directory=True)
    return folder


@pytest.mark.parametrize(
    ("name", "column"),
    [("teacher", "retrieval"), ("student", "retrieval"), ("dot", "retrieval"), ("student", "retrieval@teacher"),
     ("router", "retrieval")],
)  # fmt: skip
def test_every_metric_by_its_definition(data, models, evaluated, name, column):
    _, texts, queries, relevant = data
    reader = "student" if name == "router" else name
    documents = "teacher" if name == "router" or "@" in column else name
    ours = vectors(models / reader, queries.values(), PROMPTS["query"] if reader == "teacher" else "")
    theirs = vectors(models / documents, texts.values(), PROMPTS["passage"] if documents == "teacher" else "")
    if name != "dot":
        ours, theirs = functional.normalize(ours, dim=-1), functional.normalize(theirs, dim=-1)
    values = by_definition(ours @ theirs.T, texts, queries, relevant)
    wanted = means(values)
    assert scores_of(evaluated, f"/{name}", column) == pytest.approx(wanted, abs=1e-6)
    # The interval over queries: 1.96 standard errors of their mean to both sides, above 0.
    ndcg = 100 * values["ndcg_at_10"]
    half = 1.959964 * np.std(ndcg, ddof=1) / len(ndcg) ** 0.5
    (model,) = (each for each in evaluated.summary["models"] if each["name"].endswith(f"/{name}"))
    interval = model["columns"][column]["interval"]
    assert interval == pytest.approx([max(0, ndcg.mean() - half), ndcg.mean() + half], abs=1e-3)
    assert 0 < wanted["recall_at_10"] < wanted["recall_at_100"] < 1


def test_inner_products_are_no_cosines_and_cells_know_it(data, models, evaluated, tmp_path):
    _, texts, queries, relevant = data
    ours, theirs = (functional.normalize(vectors(models / "dot", of.values()), dim=-1) for of in (queries, texts))
    assert scores_of(evaluated, "/dot") != pytest.approx(
        means(by_definition(ours @ theirs.T, texts, queries, relevant))
    )
    config, output = models / "dot" / LIBRARY_CONFIG, tmp_path / "out"
    kept = config.read_text()
    for said, cells in (("dot", 1), ("cosine", 2), ("manhattan", 2)):
        config.write_text(json.dumps({"similarity_fn_name": said}))
        found = limbeck.evaluate([models / "dot"], "retrieval", data=data[0], output=output)
        assert len(ResultsFile(output).read()) == cells
        noted = [note for note in found.summary["notes"] if "though the folder of" in note]
        assert len(noted) == (said == "manhattan")
    config.write_text(kept)


def test_what_is_read_is_noted(evaluated):
    assert "Retrieval test: 11 queries, 150 documents" in evaluated.summary["notes"]
    assert not any("drawn" in note for note in evaluated.summary["notes"])


def test_drawn_queries_are_told(data, models, tmp_path):
    few = limbeck.evaluate([models / "dot"], "retrieval", data=data[0], output=tmp_path, overrides="max_scored_rows=5")
    assert "Retrieval test: 5 of 11 queries, drawn" in few.summary["notes"]


def no_weights(*_, **__):
    raise AssertionError("the model is loaded")


@pytest.mark.parametrize(
    ("model", "tasks", "message"),
    [
        ("classifier", "retrieval", r"is not an embedding model: it has a head \(…ForSequenceClassification\)"),
        ("choice", "retrieval", r"is not an embedding model: it has a head \(BertForMultipleChoice\)"),
        ("router", "stsb_cosine", "sends queries and documents to different models, but STS-B .* has neither"),
        ("parts", "retrieval", "does not store them as complete folders 'query' and 'document'"),
        ("student", "retrieval", "No file of the splits of Retrieval in"),
        ("gone", "retrieval", "gone"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_weights_are_loaded(
    models, tmp_path, monkeypatch, model, tasks, message
):
    router(models)
    if model == "classifier":
        config = loading.load_config(models / "student")
        model_class(config, "classification")(config).save_pretrained(models / model)
        tokenizers.load_tokenizer(models / "student").save_pretrained(models / model)
    if model == "choice":
        # No kind of task has such a head, which would be left out without a word.
        BertForMultipleChoice(loading.load_config(models / "student")).save_pretrained(models / model)
        tokenizers.load_tokenizer(models / "student").save_pretrained(models / model)
    if model == "parts":
        (models / model).mkdir()
        (models / model / MODULES).write_text(json.dumps([{"type": "sentence_transformers.models.Router"}]))
    monkeypatch.setattr(loading, "load_model", no_weights)
    with pytest.raises(LimbeckError, match=message) as caught:
        limbeck.evaluate([models / model], tasks, data=tmp_path, output=tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_model_with_a_head_gives_the_mean_of_its_hidden_states_if_asked(data, models, tmp_path):
    config = loading.load_config(models / "student")
    torch.manual_seed(0)
    folder = tmp_path / "classifier"
    model_class(config, "classification")(config).save_pretrained(folder)
    tokenizers.load_tokenizer(models / "student").save_pretrained(folder)
    found = limbeck.evaluate(
        [folder], "retrieval", data=data[0], output=tmp_path / "out", overrides=["pooling=mean", "length=12"]
    )
    _, texts, queries, relevant = data
    ours, theirs = (functional.normalize(vectors(folder, of.values()), dim=-1) for of in (queries, texts))
    wanted = means(by_definition(ours @ theirs.T, texts, queries, relevant))
    assert scores_of(found, "classifier") == pytest.approx(wanted, abs=1e-6)
