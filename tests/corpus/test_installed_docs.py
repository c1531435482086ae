import pytest

from limbeck.corpus import Document, SourceReport
from limbeck.corpus import installed_docs as module
from limbeck.corpus.installed_docs import LARGEST_FILE, InstalledDocs, installed_roots, python_files, read_docstrings
from tests.support.streams import write_packed

EXPLOSIVE = '''"""A module that must not be imported by anyone.

It would do harm at once, as the next lines show.
"""
raise SystemExit("imported!")

def function():
    "\\d is an invalid escape in a docstring."
    class Inner:
        """The inner class has a summary as well."""

if True:
    async def later():
        """Wait for the thing that comes later.

        Args:
            name: The name of the thing that is waited for.

        It takes a while before it comes.
        """
'''


@pytest.fixture
def packages(tmp_path):
    root = tmp_path / "packages"
    files = {
        "alpha/__init__.py": EXPLOSIVE,
        "alpha/copied.py": EXPLOSIVE,
        "beta/broken.py": 'def f(:\n    """Never seen by anyone at all."""\n',
        "beta/nul.py": '"""Words and words here."""\0',
        "beta/large.py": '"""Words of a large file here."""\n' + "#" * LARGEST_FILE,
        "beta/latin.py": "# coding: latin-1\n" + '"""Words that are na\xefve enough."""\n',
        "beta/surrogate.py": '"""Words with \\ud800 a lone surrogate."""\n',
        "beta/none.py": "x = 1\n",
        "beta/site-packages/vendored.py": '"""Words of another environment here."""\n',
        "beta/tests/test_it.py": '"""Words of a test of something."""\n',
        "gamma.txt": '"""Not a Python file at all."""\n',
    }
    for name, content in files.items():
        write_packed(root / name, content.encode("latin-1"))
    return root


@pytest.mark.parametrize("workers", [1, 2])
def test_docstrings_without_import(packages, workers, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1)  # One file a piece of work, so that there is work for two.
    report = SourceReport()
    steps = []
    source = InstalledDocs([packages], workers)
    documents = list(source.documents(report, lambda *now: steps.append(now)))
    summary = "A module that must not be imported by anyone."
    waiting = "Wait for the thing that comes later."
    assert documents == [
        Document(f"{summary}\nIt would do harm at once, as the next lines show.", summary),
        Document("\\d is an invalid escape in a docstring."),
        Document("The inner class has a summary as well."),
        Document(f"{waiting}\nIt takes a while before it comes.", waiting),
        Document("Words that are naïve enough."),
        Document("Words with � a lone surrogate."),
    ]
    assert report.counts == {
        "paragraph that repeats another": 6,
        "Python file that does not parse": 2,
        "Python file over 2 MB, passed over": 1,
    }
    assert (steps[0], steps[-1]) == ((0, 8, "files"), (8, 8, "files"))


def test_a_summary_that_repeats_another_is_no_title(tmp_path):
    (tmp_path / "a.py").write_text('"""Words that are repeated."""\n')
    (tmp_path / "b.py").write_text('"""Words that are repeated.\n\nMore words.\nAnd.\n\nStill more words."""\n')
    documents = list(InstalledDocs([tmp_path]).documents(SourceReport()))
    assert documents[1] == Document("More words. And.\nStill more words.")


def test_unreadable_file_is_counted(tmp_path):
    assert read_docstrings(str(tmp_path / "none.py")).problem == ("unreadable Python file: No such file or directory")


def test_fingerprints(packages):
    before = InstalledDocs([packages]).fingerprint()
    assert InstalledDocs([packages]).fingerprint() == before
    (packages / "beta" / "none.py").write_text("x = 12\n")
    assert InstalledDocs([packages]).fingerprint() != before
    whole = InstalledDocs().fingerprint()
    assert any(name.startswith("torch==") for name in whole[-1])


def test_roots_of_this_interpreter_hold_the_standard_library_and_packages():
    roots = installed_roots()
    assert any((root / "ast.py").is_file() for root in roots)
    assert any((root / "torch").is_dir() for root in roots)


def test_each_file_once(packages):
    files = list(python_files([packages, packages / "alpha"]))
    assert files == sorted(set(files))
    assert len(files) == 8
