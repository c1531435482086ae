"""Folders that `save_to_disk` of `datasets` writes: as text, as labelled rows, and as the files of a task."""

import json

import datasets
import pyarrow as pa
import pytest

from limbeck.corpus import CorpusSettings, build_corpus, open_stream
from limbeck.corpus.files.file_readers import read_rows
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.sources.named_sources import open_rows, open_source
from limbeck.errors import CorpusError
from limbeck.evaluation.tasks.loading import load_task
from tests.support.corpora import TOKENIZER
from tests.support.streams import examples

NAMES = ["positive", "negative"]  # Not in the order of the teacher's classes.
TEXTS = ["a first text", "a second\nwith two lines", "😀 and \u3000 spaces", "the last"]


def data_set(texts=TEXTS):
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=NAMES))
    rows = {"text": list(texts), "label": [number % 2 for number in range(len(texts))]}
    return datasets.Dataset.from_dict(rows, features=features)


@pytest.fixture
def saved(tmp_path):
    data_set().save_to_disk(tmp_path / "saved", num_shards=2)
    return tmp_path / "saved"


@pytest.fixture
def splits(tmp_path):
    parts = {"train": data_set(), "validation": data_set(["of validation"]), "test": data_set(["of test"])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "splits")
    return tmp_path / "splits"


def texts_of(place, column="text"):
    report = SourceReport()
    return [document.text for document in open_source(str(place), column).documents(report)], report


def test_a_saved_data_set_has_its_texts_and_rows_in_their_order(saved):
    assert texts_of(saved)[0] == TEXTS
    rows, report = examples(saved)
    assert [row.label for row in rows] == [1, 0, 1, 0]
    assert report.counts == {}
    expected = datasets.load_from_disk(str(saved))
    assert [dict(row.values) for row in open_rows(str(saved)).rows(SourceReport())] == list(expected)


def test_of_several_splits_train_is_read_and_others_by_their_folders(splits):
    assert texts_of(splits)[0] == TEXTS
    assert texts_of(splits / "validation")[0] == ["of validation"]
    datasets.DatasetDict(test=data_set()).save_to_disk(splits / "other")
    with pytest.raises(CorpusError, match=r"other' has no split 'train', but test: give the folder of a split\.$"):
        texts_of(splits / "other")


def test_indices_and_other_files_beside_are_no_part_of_it(tmp_path):
    data_set().select([2, 0]).save_to_disk(tmp_path / "chosen")
    (tmp_path / "chosen/notes.jsonl").write_text('{"text": "no row", "label": 0}')
    assert texts_of(tmp_path / "chosen")[0] == [TEXTS[2], TEXTS[0]]
    assert len(list(open_rows(str(tmp_path / "chosen")).rows(SourceReport()))) == 2


def test_a_saved_data_set_is_built_and_streamed(saved, tmp_path):
    settings = {"sources": [str(saved)], "length": 24, "minimum_tokens": 1, "held_out": 0}
    corpus = build_corpus(CorpusSettings(**settings), TOKENIZER, cache_dir=tmp_path / "cache")
    assert corpus.manifest["documents"] == len(TEXTS)
    stream = open_stream(CorpusSettings(**settings, streaming=True), TOKENIZER, cache_dir=tmp_path / "cache")
    assert stream.manifest["documents"] == len(TEXTS)


def test_a_saved_data_set_is_the_file_of_a_task(splits, tmp_path):
    task = {"name": "own", "type": "classification", "labels": ["negative", "positive"], "columns": {"text": "text"}}
    task["files"] = {"train": "splits/train", "validation": "splits/validation"}
    (tmp_path / "own.yaml").write_text(json.dumps(task))
    data = load_task(str(tmp_path / "own.yaml"), data=None)
    assert [row.label for row in data.splits["train"]] == [1, 0, 1, 0]
    assert [row.text for row in data.splits["validation"]] == ["of validation"]


def test_arrow_files_of_both_formats_are_read(tmp_path):
    table = data_set().data.table
    for name, new in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        with new(str(tmp_path / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table)
        assert texts_of(tmp_path / f"{name}.arrow")[0] == TEXTS


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("state.json", "{", "state.json does not list its files"),
        ("state.json", "[]", "state.json does not list its files"),
        ("state.json", '{"_data_files": 3}', "state.json does not list its files"),
        ("state.json", '{"_data_files": [{"filename": "../../secret"}]}', "state.json does not list its files"),
        ("state.json", '{"_data_files": [{"filename": "gone.arrow"}]}', r"its file 'gone\.arrow' is missing"),
        ("dataset_dict.json", '{"splits": 1}', "dataset_dict.json does not list its splits"),
        ("dataset_dict.json", '{"splits": ["train"]}', "its split 'train' is missing"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(saved, name, content, problem):
    (saved / name).write_text(content)
    for read in (texts_of, examples):
        with pytest.raises(CorpusError, match=f"saved' was written by `save_to_disk` and is damaged: {problem}; save"):
            read(saved)


@pytest.mark.parametrize("size", [0, 5, 200, -40])
def test_a_damaged_file_is_read_up_to_the_damage_and_told(saved, size):
    [first, second] = sorted(saved.glob("*.arrow"))
    second.write_bytes(second.read_bytes()[:size])
    texts, report = texts_of(saved)
    assert texts[:2] == TEXTS[:2]
    assert sum(report.counts.values()) == 1 or texts == TEXTS
    first.write_bytes(b"\xff" * 100)
    report = SourceReport()
    assert list(read_rows(first, report)) == []
    assert len(report.counts) == 1


def test_a_column_that_is_missing_or_no_text_is_told(saved):
    for column in ("body", "label"):
        texts, report = texts_of(saved, column)
        assert texts == []
        assert sum(report.counts.values()) == len(TEXTS)
