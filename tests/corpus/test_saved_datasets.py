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
    with pytest.raises(
        CorpusError, match=r"other' has no split 'train'; its splits are test: give the folder of one split\.$"
    ):
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


NAMES_OF_MNLI = ["entailment", "neutral", "contradiction"]
PAIRS = {"premise": ["a man", "a dog"], "hypothesis": ["a person", "a cat"], "label": [0, 2], "idx": [7, 8]}


def save_hub_split(folder, values, *, classes=None, data_set=None, config=None):
    """Save rows as those of a split that was loaded from the Hub."""
    saved = datasets.Dataset.from_dict(values)
    if classes is not None:
        saved = saved.cast_column("label", datasets.ClassLabel(names=classes))
    saved.info.dataset_name = data_set
    saved.info.config_name = config
    saved.save_to_disk(folder)


def sentences(*labels):
    return {"sentence": [f"text {number}" for number in range(len(labels))], "label": labels, "idx": range(len(labels))}


@pytest.mark.parametrize("folder", ["", "sst2", "SST-2", "glue/sst2"])
def test_splits_of_the_hub_in_the_data_folder_are_those_of_the_task(tmp_path, folder):
    for split, labels in (("train", [0, 1, 1]), ("validation", [1, 0]), ("test", [-1])):
        save_hub_split(
            tmp_path / folder / split,
            sentences(*labels),
            classes=["negative", "positive"],
            data_set="glue",
            config="sst2",
        )
    data = load_task("sst2", data=tmp_path)
    assert {split: [row.label for row in rows] for split, rows in data.splits.items()} == {
        "train": [0, 1, 1],
        "validation": [1, 0],
        "test": [None],
    }
    assert [row.id for row in data.splits["validation"]] == ["0", "1"]


def test_the_files_of_a_task_come_before_saved_splits(tmp_path):
    save_hub_split(tmp_path / "validation", sentences(1, 1))
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2/dev.tsv").write_text("sentence\tlabel\nof the table\t0\n")
    data = load_task("sst2", data=tmp_path, splits=["validation"])
    assert [row.text for row in data.splits["validation"]] == ["of the table"]


def test_a_saved_split_of_another_configuration_is_not_taken(tmp_path):
    """RTE and WNLI have the same columns, and classes of the same names in another order."""
    pairs = {"sentence1": ["a"], "sentence2": ["b"], "label": [0], "idx": [0]}
    classes = ["entailment", "not_entailment"]
    folder = tmp_path / "pairs"
    save_hub_split(folder / "validation", pairs, classes=classes, data_set="glue", config="rte")
    assert len(load_task("rte", data=folder, splits=["validation"]).splits["validation"]) == 1
    with pytest.raises(CorpusError, match="No file of the split 'validation' of WNLI"):
        load_task("wnli", data=folder, splits=["validation"])
    # Nor is a split in a subfolder of another name.
    with pytest.raises(CorpusError, match="No file of the split 'validation' of RTE"):
        load_task("rte", data=tmp_path, splits=["validation"])


def test_saved_splits_of_mnli_and_xnli(tmp_path):
    for split in ("train", "validation_matched", "validation_mismatched"):
        folder = tmp_path / "mnli" / split
        save_hub_split(folder, PAIRS, classes=NAMES_OF_MNLI, data_set="glue", config="mnli")
    for language in ("de", "en"):
        values = {**PAIRS, "premise": [language, language]}
        for split in ("validation", "test"):
            folder = tmp_path / "xnli" / language / split
            save_hub_split(folder, values, classes=NAMES_OF_MNLI, data_set="xnli", config=language)
    mnli = load_task("mnli", data=tmp_path)
    assert list(mnli.splits) == ["train", "validation_matched", "validation_mismatched"]
    assert [(row.text, row.pair, row.label) for row in mnli.splits["train"]] == [
        ("a man", "a person", 0),
        ("a dog", "a cat", 2),
    ]
    xnli = load_task("xnli", data=tmp_path)
    assert {split: rows[0].text for split, rows in xnli.splits.items()} == {
        "train": "a man",
        "validation": "de",
        "test.de": "de",
        "test.en": "en",
    }


def test_saved_splits_of_squad(tmp_path):
    answers = [{"text": ["cat"], "answer_start": [4]}]
    values = {"id": ["q"], "context": ["the cat"], "question": ["who?"], "answers": answers}
    save_hub_split(tmp_path / "squad" / "validation", values, data_set="squad", config="plain_text")
    [row] = load_task("squad", data=tmp_path, splits=["validation"]).splits["validation"]
    assert (row.answers, row.answer_starts) == (("cat",), (4,))


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
