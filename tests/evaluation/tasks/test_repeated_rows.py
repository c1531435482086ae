"""Rows of an own task that are both trained on and scored are counted, and kept."""

import yaml

from limbeck.evaluation.tasks.loading import load_task
from tests.support.task_files import write_table

COLUMNS = {"columns": {"text": "text", "label": "label"}}
TRAIN = [("A good film!", "yes"), ("A bad film", "no"), ("C++", "no"), ("It is long", "yes")]


def load(folder, development, **task):
    write_table(folder / "train.tsv", ("text", "label"), TRAIN)
    write_table(folder / "dev.tsv", ("text", "label"), development)
    task = {"name": "mine", "type": "classification", "labels": ["no", "yes"], **COLUMNS, **task}
    files = {"train": "train.tsv", "validation": "dev.tsv"}
    (folder / "mine.yaml").write_text(yaml.safe_dump({**task, "files": files}))
    return load_task(str(folder / "mine.yaml"), data=None)


def test_repeated_rows_are_counted_and_kept(tmp_path):
    development = [("a good  film", "yes"), ("C#", "no"), ("it is LONG.", "no"), ("new", "no")]
    data = load(tmp_path, development)
    assert (
        "mine validation: 2 of 4 rows repeat a training row, so that the scores may be too good (case, punctuation and "
        "spaces do not count)"
    ) in data.notes
    assert (len(data.splits["train"]), len(data.splits["validation"])) == (4, 4)


def test_one_repeated_row_is_in_the_singular_and_none_has_no_note(tmp_path):
    [note] = [note for note in load(tmp_path, [TRAIN[1], ("new", "no")]).notes if "repeat" in note]
    assert "1 of 2 rows repeats a training row" in note
    assert not [note for note in load(tmp_path, [("new", "no")]).notes if "repeat" in note]


def test_a_pair_is_repeated_only_as_a_whole(tmp_path):
    write_table(tmp_path / "train.tsv", ("a", "b", "label"), [("x", "y", "no"), ("x", "z", "yes")])
    write_table(tmp_path / "dev.tsv", ("a", "b", "label"), [("x", "y", "yes"), ("y", "x", "no"), ("x", "w", "no")])
    files = {"train": "train.tsv", "validation": "dev.tsv"}
    columns = {"text": "a", "pair": "b", "label": "label"}
    task = {"name": "mine", "type": "pair", "labels": ["no", "yes"], "columns": columns, "files": files}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(task))
    notes = load_task(str(tmp_path / "mine.yaml"), data=None).notes
    assert [note.split(",")[0] for note in notes if "repeat" in note] == [
        "mine validation: 1 of 3 rows repeats a training row"
    ]
