"""Scores of rankings and retrievals equal those of `pytrec_eval`, in whichever order and layout rows come."""

import itertools
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import strategies as st

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.stored.arrow_files import read_rows, row_files
from limbeck.corpus.stored.stored_rows import store_rows
from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.document_search import Search
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.ranking_scores import QueryScores, score_query
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score
from tests.oracles.generated import on_generated
from tests.support.streams import row_settings

# Relevance of each document of each query; below 0 stands for a document that was judged harmful.
JUDGEMENTS = st.lists(st.lists(st.sampled_from([-1, 0, 0, 0, 1, 2]), min_size=1, max_size=14), min_size=1, max_size=6)
SEEDS = st.integers(0, 10_000)
DESCRIPTION = """
name: ranks
type: ranking
files: {validation: rows.jsonl}
columns: {query: query, documents: [document], label: relevance}
"""
FOLDER = """
name: search
type: retrieval
files: {test: rows.jsonl}
queries: queries.jsonl
documents: documents.jsonl
"""


def expected_scores(judgements: list[list[int]], scores: list[list[float]]) -> dict[str, float]:
    """Return the means of `pytrec_eval` over queries; a query without a relevant document counts 0."""
    judged = {}
    runs = {}
    for query, relevance in enumerate(judgements):
        judged[f"q{query}"] = {f"d{number}": value for number, value in enumerate(relevance)}
        runs[f"q{query}"] = {f"d{number}": scores[query][number] for number in range(len(relevance))}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_10", "recall_10", "recall_100"})
    of_queries = evaluator.evaluate(runs)
    means = {}
    for name, theirs in (("ndcg_at_10", "ndcg_cut_10"), ("recall_at_10", "recall_10"), ("recall_at_100", "recall_100")):
        means[name] = float(np.mean([of_query[theirs] for of_query in of_queries.values()]))
    return means


def draw_scores(judgements: list[list[int]], seed: int) -> list[list[float]]:
    """Return different scores of the documents of each query: of equal ones `pytrec_eval` takes the order of ids."""
    generator = random.Random(seed)
    return [generator.sample(range(1000), len(relevance)) for relevance in judgements]


@on_generated(1_000, judgements=JUDGEMENTS, seed=SEEDS)
def test_a_ranking_with_a_document_a_row_has_the_scores_of_its_queries_in_any_order(judgements, seed):
    scores = draw_scores(judgements, seed)
    rows = []
    for query, relevance in enumerate(judgements):
        for number, value in enumerate(relevance):
            rows.append({"query": f"query {query}", "document": f"{query}/{number}", "relevance": value})
    random.Random(seed).shuffle(rows)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ranks.yaml").write_text(DESCRIPTION)
        (Path(folder) / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = load_task(str(Path(folder) / "ranks.yaml"), data=None, splits=["validation"])
    read = data.splits["validation"]
    # A harmful document is one that is not relevant, to the loss of a fine-tuning too.
    assert all(row.label is not None and row.label >= 0 for row in read)
    predictions = []
    for row in read:
        query, number = map(int, row.pair.split("/"))
        predictions.append(float(scores[query][number]))
    found = score(data.task, "validation", read, predictions)
    assert found["ndcg_at_10"] == pytest.approx(expected_scores(judgements, scores)["ndcg_at_10"], abs=1e-9)


@on_generated(1_000, judgements=JUDGEMENTS, seed=SEEDS)
def test_a_retrieval_has_the_scores_of_its_queries_in_any_order(judgements, seed):
    queries = len(judgements)
    documents = max(len(relevance) for relevance in judgements)
    # Every query is scored on every document; those that it does not judge are not relevant.
    whole = [[*relevance, *[0] * (documents - len(relevance))] for relevance in judgements]
    scores = draw_scores(whole, seed)
    rows = []
    for query, relevance in enumerate(judgements):
        for number, value in enumerate(relevance):
            ids = (f"q{query}", f"d{number}")
            rows.append(LabelledRow("", f"query {query}", f"document {number}", max(0.0, float(value)), ids=ids))
    random.Random(seed).shuffle(rows)
    if documents < 2 or not any(value > 0 for relevance in judgements for value in relevance):
        with pytest.raises(CorpusError):
            Search.of(rows, "it")
        return
    search = Search.of(rows, "it")
    order = [int(text.split()[1]) for text in search.queries]
    places = [int(text.split()[1]) for text in search.documents]
    # Vectors of queries are rows of the unit matrix, so that products are the scores.
    table = torch.tensor(scores, dtype=torch.float32)[order][:, places].T.contiguous()
    found = search.score(torch.eye(queries), table)
    for name, value in expected_scores(whole, scores).items():
        assert found[name] == pytest.approx(value, abs=1e-6), name


@st.composite
def tied_documents(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Draw score and relevance of a query's documents: some with scores of their own, and at most 4 that may be tied.

    The first ones move the tied ones around rank 10, where metrics end.
    """
    relevance = st.sampled_from([-1, 0, 0, 1, 2])
    before = draw(st.integers(0, 11))
    documents = [(100 - number, draw(relevance)) for number in range(before)]
    tied = st.tuples(st.integers(1, 2), relevance)
    return documents + draw(st.lists(tied, min_size=1, max_size=4))


@on_generated(1_000, documents=tied_documents())
def test_tied_documents_have_the_mean_of_all_orders_and_the_worst_rank(documents):
    """`pytrec_eval` puts tied documents in the order of their ids, so it is asked about each order of the ids."""
    orders = list(itertools.permutations(range(len(documents))[-4:]))
    judged = {}
    runs = {}
    for place, order in enumerate(orders):
        ids = [f"d{number:02}" for number in (*range(len(documents) - len(order)), *order)]
        judged[f"q{place}"] = {name: relevance for name, (_, relevance) in zip(ids, documents, strict=True)}
        runs[f"q{place}"] = {name: float(points) for name, (points, _) in zip(ids, documents, strict=True)}
    evaluator = pytrec_eval.RelevanceEvaluator(
        judged, {"ndcg_cut_10", "recall_10", "recall_100", "recip_rank", "success"}
    )
    of_orders = list(evaluator.evaluate(runs).values())
    worst = min(of_order["recip_rank"] for of_order in of_orders)
    expected = QueryScores(
        ndcg_at_10=float(np.mean([of_order["ndcg_cut_10"] for of_order in of_orders])),
        mrr_at_10=worst if worst >= 1 / 10 else 0.0,
        recall_at_10=float(np.mean([of_order["recall_10"] for of_order in of_orders])),
        recall_at_100=float(np.mean([of_order["recall_100"] for of_order in of_orders])),
        accuracy_at_1=min(of_order["success_1"] for of_order in of_orders),
    )
    points, relevance = (np.array(column, np.float64) for column in zip(*documents, strict=True))
    assert score_query(points, relevance.clip(min=0)) == pytest.approx(expected, abs=1e-6)


@on_generated(
    1_000,
    judgements=st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 12)), st.sampled_from([-1, 0, 1, 1, 2, 3]), min_size=1
    ),
    known_documents=st.integers(2, 13),
    seed=SEEDS,
)
def test_a_folder_of_queries_documents_and_judgements_has_the_scores_of_pytrec_eval(judgements, known_documents, seed):
    """Queries that nobody judged are not searched for, and judged documents that are missing are refused."""
    draw = random.Random(seed)
    documents = [f"d{number}" for number in range(known_documents)]
    queries = [f"q{number}" for number in range(7)]
    lines = [{"query": f"q{query}", "documents": f"d{number}", "label": v} for (query, number), v in judgements.items()]
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (
            ("rows", lines),
            ("documents", [{"_id": own, "text": f"document {own}"} for own in documents]),
            ("queries", [{"_id": own, "text": f"query {own}"} for own in queries]),
        ):
            draw.shuffle(rows)
            (Path(folder) / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (Path(folder) / "search.yaml").write_text(FOLDER)
        if any(number >= known_documents for _, number in judgements):
            with pytest.raises(CorpusError, match="for which the file of documents has no text"):
                load_task(str(Path(folder) / "search.yaml"), data=None)
            return
        read = load_task(str(Path(folder) / "search.yaml"), data=None).splits["test"]
    if max(judgements.values()) <= 0:
        with pytest.raises(CorpusError, match="at least one query with a relevant document"):
            Search.of(read, "it")
        return
    search = Search.of(read, "it")
    asked = [text.removeprefix("query ") for text in search.queries]
    searched = [text.removeprefix("document ") for text in search.documents]
    scores = {query: dict(zip(searched, draw.sample(range(1000), known_documents), strict=True)) for query in asked}
    judged: dict[str, dict[str, int]] = {}
    for (query, number), relevance in judgements.items():
        judged.setdefault(f"q{query}", {})[f"d{number}"] = relevance
    assert sorted(asked) == sorted(judged)
    assert sorted(searched) == sorted(documents)
    table = torch.tensor([[scores[query][own] for own in searched] for query in asked], dtype=torch.float32)
    runs = {query: {own: float(points) for own, points in row.items()} for query, row in scores.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_10", "recall_10"})
    of_queries = evaluator.evaluate(runs).values()
    found = search.score(torch.eye(len(asked)), table.T.contiguous())
    assert found["ndcg_at_10"] == pytest.approx(np.mean([each["ndcg_cut_10"] for each in of_queries]), abs=1e-6)
    assert found["recall_at_10"] == pytest.approx(np.mean([each["recall_10"] for each in of_queries]), abs=1e-6)


def test_a_corpus_has_the_documents_of_a_query_together(tmp_path):
    rows = [{"query": f"query {n % 3}", "documents": f"document {n}", "label": n} for n in range(9)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder, _ = store_rows(row_settings(path, task="ranking", labels=()), KINDS["ranking"], tmp_path / "cache")
    queries = [row.text for file in row_files(folder) for batch in read_rows(file) for row in batch.rows]
    assert queries == ["query 0"] * 3 + ["query 1"] * 3 + ["query 2"] * 3
