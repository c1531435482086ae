"""The comparison with committed files itself: it notices, it names the place, and a missing file fails."""

import pytest

from tests.golden import snapshot


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "SNAPSHOTS", tmp_path)
    monkeypatch.delenv(snapshot.UPDATE, raising=False)


def write(monkeypatch, name, value):
    monkeypatch.setenv(snapshot.UPDATE, "1")
    snapshot.check(name, value)
    monkeypatch.delenv(snapshot.UPDATE)


def test_a_missing_snapshot_fails():
    with pytest.raises(AssertionError, match="No snapshot new.json"):
        snapshot.check("new", {"a": 1})


def test_equal_values_pass_and_keys_are_sorted(monkeypatch, tmp_path):
    write(monkeypatch, "some", {"b": [1, "é"], "a": None})
    snapshot.check("some", {"a": None, "b": [1, "é"]})
    assert (tmp_path / "some.json").read_text(encoding="utf-8").index('"a"') == 3


def test_a_changed_value_fails_with_its_line(monkeypatch):
    write(monkeypatch, "some", {"a": 1, "b": 2})
    with pytest.raises(AssertionError, match='(?s)- "b": 2.*\\+ "b": 3'):
        snapshot.check("some", {"a": 1, "b": 3})


def test_text_is_compared_byte_for_byte(monkeypatch, tmp_path):
    write(monkeypatch, "page.md", "a\r\nb  \n")
    assert (tmp_path / "page.md").read_bytes() == b"a\r\nb  \n"
    snapshot.check("page.md", "a\r\nb  \n")
    with pytest.raises(AssertionError, match="page.md differs"):
        snapshot.check("page.md", "a\nb  \n")


@pytest.mark.parametrize(
    ("now", "place"),
    [
        ({"a": [1.0, 2.1], "b": "x"}, r"/a\[1\]: committed 2.0, now 2.1"),
        ({"a": [1.0], "b": "x"}, "/a: committed"),
        ({"a": [1.0, 2.0], "b": "y"}, "/b: committed 'x', now 'y'"),
        ({"a": [1.0, 2.0]}, "/b: only committed"),
        ({"a": [1.0, 2.0], "b": "x", "c": 0}, "/c: only now"),
        ({"a": [1.0, True], "b": "x"}, r"/a\[1\]"),
        ({"a": [1.0, float("nan")], "b": "x"}, r"/a\[1\]"),
    ],
    ids=["number", "shorter list", "string", "key gone", "key new", "truth for number", "nan"],
)
def test_a_tolerance_is_one_of_numbers_only(monkeypatch, now, place):
    write(monkeypatch, "some", {"a": [1.0, 2.0], "b": "x"})
    snapshot.check("some", {"a": [1.0, 2.00001], "b": "x"}, relative=1e-4)
    with pytest.raises(AssertionError, match=place):
        snapshot.check("some", now, relative=1e-4)
