"""The comparison with committed files itself: it notices, it names the place, and a missing file fails."""

from contextlib import nullcontext

import pytest

from tests.golden import snapshot


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "SNAPSHOTS", tmp_path)
    monkeypatch.delenv(snapshot.UPDATE, raising=False)


SOME = {"a": [1.0, 2.0], "b": "x"}


@pytest.mark.parametrize(
    ("kept", "now", "relative", "difference"),
    [
        ({"b": [1, "é"], "a": None}, {"a": None, "b": [1, "é"]}, 0.0, None),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 0.0, r'(?s)- "b": 2.*\+ "b": 3'),
        ("a\r\nb  \n", "a\r\nb  \n", 0.0, None),
        ("a\r\nb  \n", "a\nb  \n", 0.0, "page.md differs"),
        (SOME, {"a": [1.0, 2.00001], "b": "x"}, 1e-4, None),
        (SOME, {"a": [1.0, 2.1], "b": "x"}, 1e-4, r"/a\[1\]: committed 2.0, now 2.1"),
        (SOME, {"a": [1.0], "b": "x"}, 1e-4, "/a: committed"),
        (SOME, {"a": [1.0, 2.0], "b": "y"}, 1e-4, "/b: committed 'x', now 'y'"),
        (SOME, {"a": [1.0, 2.0]}, 1e-4, "/b: only committed"),
        (SOME, {"a": [1.0, 2.0], "b": "x", "c": 0}, 1e-4, "/c: only now"),
        (SOME, {"a": [1.0, True], "b": "x"}, 1e-4, r"/a\[1\]"),
        (SOME, {"a": [1.0, float("nan")], "b": "x"}, 1e-4, r"/a\[1\]"),
    ],
)
def test_a_difference_is_named_and_a_tolerance_is_one_of_numbers_only(monkeypatch, kept, now, relative, difference):
    name = "page.md" if isinstance(kept, str) else "some"
    with monkeypatch.context() as patch:
        patch.setenv(snapshot.UPDATE, "1")
        snapshot.check(name, kept)
    with nullcontext() if difference is None else pytest.raises(AssertionError, match=difference):
        snapshot.check(name, now, relative=relative)


def test_a_missing_snapshot_fails():
    with pytest.raises(AssertionError, match="No snapshot new.json"):
        snapshot.check("new", {"a": 1})
