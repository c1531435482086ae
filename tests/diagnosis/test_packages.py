"""What is installed, judged by what the installer was told."""

from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from limbeck.diagnosis import checks
from limbeck.diagnosis.checks import USES, find_extra, find_limbeck, find_needed, find_python, problem_of
from limbeck.diagnosis.checks import find_packages as find

MISSING = "no-such-package-of-limbeck"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def requirements(*texts):
    return [Requirement(text) for text in texts]


@pytest.fixture
def installed(monkeypatch):
    """Pretend that what is installed of limbeck says something else."""

    def pretend(version=checks.__version__, needs=(), extras=(), python=">=3.11"):
        fields = {"Requires-Python": python}
        described = type("Described", (dict,), {"get_all": lambda self, name: list(extras)})(fields)
        real = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: version if name == "limbeck" else real(name))
        monkeypatch.setattr(metadata, "requires", lambda name: list(needs))
        monkeypatch.setattr(metadata, "metadata", lambda name: described)

    return pretend


def test_what_is_there_is_listed_with_its_version():
    (found,) = find_needed(requirements("pytest>=1", f"{MISSING}; extra == 'x'", f"{MISSING}; sys_platform == 'none'"))
    assert found.status == "ok"
    assert found.facts == {"pytest": metadata.version("pytest")}


@pytest.mark.parametrize(
    ("needed", "problem"), [(f"{MISSING}>=2", f"{MISSING} is not installed"), ("pytest<0.1", "does not fit <0.1")]
)
def test_what_is_missing_or_too_old_fails_with_the_line_to_install_it(needed, problem):
    failed, rest = find_needed(requirements(needed, "packaging"))
    assert (failed.status, rest.status) == ("failed", "ok")
    assert problem in failed.text
    assert failed.way_out == f'pip install "{needed}"'


def test_a_version_before_a_release_counts_as_one():
    (needed,) = requirements(f"torch>={metadata.version('torch').split('+')[0]}")
    assert problem_of(needed) is None


def test_an_extra_is_absent_or_complete():
    listed = requirements("rich", "pytest; extra == 'export'", f"{MISSING}>=1; extra == 'export'")
    found = find_extra("export", "`limbeck export`", listed)
    assert found.status == "absent"
    assert found.facts == {"pytest": metadata.version("pytest"), MISSING: None}
    assert found.way_out == 'pip install "limbeck[export]"'
    assert "for `limbeck export`" in found.text and f"{MISSING} is not installed" in found.text
    assert find_extra("export", "", listed[:2]).status == "ok"
    elsewhere = find_extra("triton", "a GPU", requirements("triton; sys_platform == 'none' and extra == 'triton'"))
    assert (elsewhere.status, elsewhere.way_out) == ("absent", None)


def test_the_whole_part(installed):
    installed(needs=["rich", "pytest; extra == 'quickstart'"], extras=["quickstart"])
    found = {finding.name: finding for finding in find()}
    assert [found[name].status for name in ("python", "limbeck", "needed packages")] == ["ok"] * 3
    assert found["extra quickstart"].status == "ok"
    older = found["extra triton"]
    assert older.status == "warning" and 'pip install --upgrade "limbeck[triton]"' in older.way_out


def test_another_limbeck_than_the_installed_one_is_said(installed):
    installed(version="0.0.1")
    found = find_limbeck()
    assert found.status == "warning" and "installed as 0.0.1" in found.text


def test_a_limbeck_that_is_only_imported_is_said(monkeypatch):
    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    for function in ("version", "requires", "metadata"):
        monkeypatch.setattr(metadata, function, nothing)
    python, found = find()
    assert python.status == "ok"
    assert (found.status, found.way_out) == ("warning", "pip install limbeck")


def test_a_python_that_is_too_old_fails(installed):
    installed(python=">=4.7")
    found = find_python()
    assert found.status == "failed" and found.way_out == "install Python >=4.7"


def test_the_extras_of_users_are_all_explained():
    import tomllib

    extras = set(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"])
    assert set(USES) <= extras
    assert extras - set(USES) <= {"dev", "docs", "examples"}
