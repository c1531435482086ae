"""Scores of rankings and retrievals equal those of `pytrec_eval`, in whichever order and layout rows come."""

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


def test_a_corpus_has_the_documents_of_a_query_together(tmp_path):
    rows = [{"query": f"query {n % 3}", "documents": f"document {n}", "label": n} for n in range(9)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder, _ = store_rows(row_settings(path, task="ranking", labels=()), KINDS["ranking"], tmp_path / "cache")
    queries = [row.text for file in row_files(folder) for batch in read_rows(file) for row in batch.rows]
    assert queries == ["query 0"] * 3 + ["query 1"] * 3 + ["query 2"] * 3
