"""Claims of output folders: by one identity, and whole after any kill or full disk."""

import resource

import pytest

from limbeck.core.folders import FolderKind, claim, first_difference
from limbeck.errors import OutputError
from limbeck.search.folder import prepare_search_folder


def test_a_search_that_met_a_full_disk_can_be_started_again(tmp_path):
    (tmp_path / "search.journal").touch()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OutputError, match="cannot be written"):
            prepare_search_folder(tmp_path, kind="mapping", name="mine")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    prepare_search_folder(tmp_path, kind="mapping", name="mine")


def refuse_another(folder, saved, asked):
    if first_difference(saved, dict(asked)):
        raise OutputError("another")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, None),
        ({"beside.log": ""}, None),
        ({"kind.json.partial": "{"}, None),
        ({"kind.json": '{"a": 1}', "more": ""}, None),
        ({"kind.json": '{"a": 2}'}, "another"),
        ({"thesis.tex": ""}, "holds no kind; choose an empty or new folder"),
        ({"kind.json": ""}, "kind.json' cannot be read; go elsewhere"),
        ({"kind.json": "[1]"}, "cannot be read; go elsewhere"),
        ({"kind.json": "[" * 100_000}, "cannot be read"),
    ],
)
def test_a_folder_is_claimed_by_its_identity_alone(content, problem, tmp_path):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    kind = FolderKind("kind", "kind.json", refuse_another, "go elsewhere", frozenset({"beside.log"}))
    if problem is None:
        assert claim(tmp_path, kind, {"a": 1}) == ({"a": 1} if "kind.json" in content else {})
    else:
        with pytest.raises(OutputError, match=problem):
            claim(tmp_path, kind, {"a": 1})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == content


def test_a_folder_is_no_file_and_can_be_written(tmp_path):
    kind = FolderKind("kind", "kind.json", refuse_another)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is a file; give a folder"):
        claim(tmp_path / "file", kind, {})
    with pytest.raises(OutputError, match="cannot be written: Not a directory"):
        claim(tmp_path / "file" / "below", kind, {})


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ({"a": {"b": [1, 2]}, "c": 1}, {"c": 1, "a": {"b": [1, 2]}}, None),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ("a.b.1", 2, 3)),
        ({"a": [1, 2]}, {"a": [1]}, ("a", [1, 2], [1])),
        ({"a": 1}, {"a": 1, "b": 0}, ("b", None, 0)),
        ({"a": 1, "b": 2}, {"b": 3}, ("a", 1, None)),
    ],
)
def test_the_first_difference_names_its_place(old, new, difference):
    assert first_difference(old, new) == difference
