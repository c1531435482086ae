"""Rows of an own task that are both trained on and scored are counted, and kept."""

from dataclasses import replace

import pytest
import yaml

from limbeck.evaluation.tasks.loading import load_task
from limbeck.evaluation.tasks.repeated_rows import repeated_row_notes
from limbeck.kinds.registry import KINDS
from limbeck.models.tokenizers import load_tokenizer
from tests.support.task_files import write_table
from tests.support.tasks import POINT, make_data, prepare, tiny_folder

TRAIN = [("A good film!", "yes"), ("A bad film", "no"), ("C++", "no"), ("It is a long way to go", "yes")]
TOO_GOOD = "a training row, so that the scores are too good (case, punctuation and spaces do not count)"


@pytest.fixture
def load(tmp_path):
    """A function that writes a task with some development rows, and loads its rows to train on and to score."""

    def load(development, train=TRAIN, columns=("text", "label"), training=True, kind="classification"):
        write_table(tmp_path / "train.tsv", columns, train)
        write_table(tmp_path / "dev.tsv", columns, development)
        path = tmp_path / "mine.yaml"
        described = {"name": "mine", "type": kind, "labels": ["no", "yes"]}
        described["columns"] = {column: column for column in columns}
        described["files"] = {"train": "train.tsv", "validation": "dev.tsv"}
        path.write_text(yaml.safe_dump(described))
        return load_task(str(path), data=None, training=training)

    return load


def texts(rows):
    return [row.text for row in rows]


def notes_of(data):
    others = {split: rows for split, rows in data.splits.items() if split != "train"}
    return list(repeated_row_notes(data.task.title, data.splits.get("train", ()), others))


def repeats(data):
    return [note.split(",")[0] for note in notes_of(data)]


def test_repeated_rows_are_counted_and_kept(load):
    data = load([("a good  film", "yes"), ("C#", "no"), ("c++.", "no"), ("new", "no")])
    assert texts(data.splits["train"]) == [text for text, _ in TRAIN]
    assert texts(data.splits["validation"]) == ["a good  film", "C#", "c++.", "new"]
    assert notes_of(data) == [f"mine validation: 2 of 4 rows repeat {TOO_GOOD}"]
    [note] = notes_of(load([TRAIN[1], ("new", "no")]))
    assert note == f"mine validation: 1 of 2 rows repeats {TOO_GOOD}"


def test_similar_rows_are_counted_apart(load):
    data = load([("It is a long way to go home", "yes"), ("new", "no"), ("it is a long way to go", "no")])
    assert repeats(data) == [
        "mine validation: 1 of 3 rows repeats a training row", "mine validation: 1 of 3 rows resembles a training row"
    ]  # fmt: skip
    similar = "so that the scores may be too good (each shares at least half of its three-word sequences)"
    [note] = notes_of(load([("It is a long way to go home", "yes")]))
    assert note.endswith(similar)


def test_rows_that_nothing_repeats_have_no_note(load):
    assert repeats(load([("new", "no")])) == []
    # Where nothing is trained, the rows to train on are not read.
    assert repeats(load([TRAIN[0]], training=False)) == []


def test_a_pair_is_repeated_only_as_a_whole(load):
    data = load(
        [("x", "y", "yes"), ("y", "x", "no"), ("x", "w", "no")],
        train=[("x", "y", "no"), ("x", "z", "yes")],
        columns=("text", "pair", "label"),
        kind="pair",
    )
    assert repeats(data) == ["mine validation: 1 of 3 rows repeats a training row"]


def test_only_drawn_rows_to_train_on_count(load, tmp_path):
    data = load([row for row in TRAIN if row[0] != "C++"])
    tokenizer = load_tokenizer(str(tiny_folder(tmp_path)))
    counts = {}
    for most in (None, 2):
        prepared = prepare(data, replace(POINT, max_train_rows=most), tokenizer, cache_dir=tmp_path / "cache")
        [note] = [note for note in prepared.notes if "repeat" in note]
        counts[most] = note.split(" rows")[0]
    drawn = KINDS["classification"].draw(data.splits["train"], 2)
    repeated = len({row.text for row in drawn} & {row.text for row in data.splits["validation"]})
    assert counts == {None: "mine validation: 3 of 3", 2: f"mine validation: {repeated} of 3"} and repeated < 3


def test_unlabelled_rows_have_no_note_on_scores(tmp_path):
    data = make_data("classification")
    train = data.splits["train"]
    splits = {"train": train, "validation": data.splits["validation"], "test": train[:3]}
    tokenizer = load_tokenizer(str(tiny_folder(tmp_path)))
    prepared = prepare(replace(data, splits=splits), POINT, tokenizer, cache_dir=tmp_path / "cache")
    assert "test" in prepared.rows
    assert not [note for note in prepared.notes if " test: " in note and "a training row" in note]
