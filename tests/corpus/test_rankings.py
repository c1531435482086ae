"""Queries and their documents: which rows are read together, and how they become a batch."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset

from limbeck.corpus import GroupedRows, PadCollator
from limbeck.corpus.stored.arrow_files import read_rows, row_files
from limbeck.corpus.stored.stored_rows import store_rows
from limbeck.kinds.registry import KINDS
from tests.support.streams import build_rows, examples, row_settings


def pairs_of(queries):
    """A row for each pair, its only token the number of the row."""
    rows = {"input_ids": [[n] * (n % 3 + 1) for n in range(len(queries))], "query": queries}
    return Dataset.from_dict({**rows, "length": [n % 3 + 1 for n in range(len(queries))]})


@pytest.mark.parametrize(
    ("queries", "most", "sizes"),
    [
        ([7, 7, 3, 7, 7, 7], 4, [2, 1, 3]),
        ([7] * 7, 3, [2, 2, 3]),
        ([7] * 4 + [-9] * 5, 3, [2, 2, 2, 3]),
        ([1, 2, 3], 1, [1, 1, 1]),
        ([5], 16, [1]),
        ([], 16, []),
    ],
)
def test_consecutive_rows_of_a_query_are_a_group(queries, most, sizes):
    table = pairs_of(queries)
    groups = GroupedRows(table, table, most)
    assert np.diff(groups.bounds).tolist() == sizes
    read = [[row["input_ids"][0] for row in group["documents"]] for group in groups.__getitems__(range(len(groups)))]
    assert [number for group in read for number in group] == list(range(len(queries)))
    if sizes:
        longest = [max(number % 3 + 1 for number in group) for group in read]
        assert groups["length"].tolist() == longest


def test_padding_of_a_batch_of_groups():
    table = pairs_of([7, 7, 3, 5, 5, 5])  # 1, 2; 3; 1, 2, 3 tokens.
    assert GroupedRows(table, table, 16).padding_share([0, 1, 2], 2) == pytest.approx(1 - 12 / (3 * 3 + 3 * 3))


def test_a_batch_says_which_rows_are_of_one_query():
    table = pairs_of([7, 7, 3, 5, 5, 5])
    batch = PadCollator(0)([GroupedRows(table, table, 16)[index] for index in (2, 0)])
    assert batch["groups"].tolist() == [0, 0, 0, 1, 1]
    assert batch["input_ids"][:, 0].tolist() == [3, 4, 5, 0, 1]
    assert batch["groups"].dtype == torch.int64


def test_rows_without_labels_are_read_and_queries_are_held_out_whole(tmp_path, bert_tokenizer):
    path = tmp_path / "a.jsonl"
    rows = [{"query": f"the model {n}", "documents": [f"text {n}", "a layer"]} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found, _ = examples(path, task="ranking")
    assert len(found) == 80 and all(np.isnan(example.label) for example in found)
    corpus = build_rows(tmp_path / "cache", bert_tokenizer, path, task="ranking", labels=())
    train, held = (set(split["query"][:]) for split in (corpus.train, corpus.held_out))
    assert not train & held and len(train | held) == 40 and held
    assert len(corpus.train) == 2 * len(train)
    assert np.diff(GroupedRows(corpus.train, corpus.train, 16).bounds).tolist() == [2] * len(train)


@pytest.mark.parametrize(
    ("task", "columns", "labels"),
    [("ranking", "document_columns", ()), ("multi_label", "label_columns", ("LABEL_0", "LABEL_1"))],
)
def test_the_order_of_columns_that_say_what_is_relevant_is_known_to_the_cache(tmp_path, task, columns, labels):
    path = tmp_path / "a.jsonl"
    row = {"query": "it", "text": "it"} | ({"a": 1, "b": 0} if labels else {"a": "a text", "b": "we are"})
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    folders = [
        store_rows(row_settings(path, task=task, labels=labels, **{columns: order}), KINDS[task], tmp_path / "cache")[0]
        for order in (["a", "b"], ["b", "a"])
    ]
    first, second = (next(read_rows(*row_files(folder)))[0] for folder in folders)
    assert {(row.pair, row.label) for row in first} != {(row.pair, row.label) for row in second}
