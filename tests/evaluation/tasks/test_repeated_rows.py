"""Rows of an own task that are both trained on and scored are left out of the training, and told."""

import pytest
import yaml

from limbeck.errors import CorpusError
from limbeck.evaluation.evaluators.rows import load_rows
from tests.support.task_files import write_table

TRAIN = [("A good film!", "yes"), ("A bad film", "no"), ("C++", "no"), ("It is a long way to go", "yes")]
LEFT_OUT = "left out, because other splits repeat them (case, punctuation and spaces do not count)"


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
        load_rows.cache_clear()
        return load_rows(str(path), None, training=training)

    return load


def texts(rows):
    return [row.text for row in rows]


def test_repeated_rows_are_left_out_of_the_training(load):
    data = load([("a good  film", "yes"), ("C#", "no"), ("c++.", "no"), ("new", "no")])
    assert texts(data.splits["train"]) == ["A bad film", "It is a long way to go"]
    assert texts(data.splits["validation"]) == ["a good  film", "C#", "c++.", "new"]
    assert f"mine train: 2 of 4 rows are {LEFT_OUT}" in data.notes
    assert f"mine train: 1 of 4 rows is {LEFT_OUT}" in load([TRAIN[1], ("new", "no")]).notes


def test_similar_rows_stay_and_are_counted(load):
    data = load([("It is a long way to go home", "yes"), ("new", "no")])
    assert len(data.splits["train"]) == 4
    assert (
        "mine validation: 1 of 2 rows resembles a training row, so that the scores may be too good (each shares at "
        "least half of its three-word sequences)"
    ) in data.notes


def test_rows_that_nothing_repeats_have_no_note(load):
    notes = load([("new", "no")]).notes
    assert not [note for note in notes if "repeat" in note or "resemble" in note]
    # Where nothing is trained, the rows to train on are not read.
    assert "train" not in load([TRAIN[0]], training=False).splits


def test_a_pair_is_repeated_only_as_a_whole(load):
    data = load(
        [("x", "y", "yes"), ("y", "x", "no"), ("x", "w", "no")],
        train=[("x", "y", "no"), ("x", "z", "yes")],
        columns=("text", "pair", "label"),
        kind="pair",
    )
    assert [(row.text, row.pair) for row in data.splits["train"]] == [("x", "z")]


def test_a_task_without_other_rows_to_train_on_is_refused(load):
    with pytest.raises(CorpusError, match="repeat all of its 4 training rows"):
        load(TRAIN)
