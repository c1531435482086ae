"""What a maintainer's tools are told is what the repository has."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import limbeck

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def constraints(name):
    lines = (ROOT / "constraints" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return {found.name.lower(): found for found in (Requirement(line) for line in lines if not line.startswith("#"))}


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_runs_the_checks_on_every_python_that_the_package_names():
    [job] = read(".github/workflows/checks.yml")["jobs"].values()
    named = [kind.rpartition(" ")[2] for kind in PROJECT["classifiers"] if "Python :: 3." in kind]
    assert job["strategy"]["matrix"]["python"] == named
    for command in [step["run"] for step in job["steps"] if "run" in step]:
        assert os.access(ROOT / command, os.X_OK), command


def test_hooks_before_a_commit_call_tools_of_the_development_environment():
    development = " ".join(PROJECT["optional-dependencies"]["dev"])
    [local] = read(".pre-commit-config.yaml")["repos"]
    for hook in local["hooks"]:
        folder, _, tool = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv/bin" and tool in development, hook


def test_the_citation_names_this_version_and_licence():
    cited = read("CITATION.cff")
    assert (cited["version"], cited["license"]) == (limbeck.__version__, PROJECT["license"])
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_the_constraints_are_versions_that_the_package_allows_and_its_lower_bounds():
    extras = PROJECT["optional-dependencies"]
    asked = [Requirement(line) for line in (*PROJECT["dependencies"], *extras["quickstart"], *extras["export"])]
    newest, lowest = constraints("newest"), constraints("lowest")
    assert {found.name.lower() for found in asked} == set(newest) == set(lowest) | {"torch"}
    for found in asked:
        for chosen in (newest, lowest):
            if pinned := chosen.get(found.name.lower()):
                [version] = [part.version for part in pinned.specifier]
                assert found.specifier.contains(version), found
        if pinned := lowest.get(found.name.lower()):
            bounds = [part.version for part in found.specifier if part.operator in (">=", "==")]
            assert [Version(bound) for bound in bounds] == [Version(part.version) for part in pinned.specifier], found


def test_the_checks_call_targets_of_the_makefile():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"^make (?:-j 2 )?([a-z. /-]+)$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    for target in " ".join(called).replace(".venv/.dev", "$(VENV)/.dev").split():
        assert re.search(rf"^{re.escape(target)}:", text, re.MULTILINE), target


@pytest.mark.parametrize(
    ("version", "heading", "words"),
    [
        ("9.1.0", "## 0.1.0 (unreleased)", "## 9.1.0 (YYYY-MM-DD)"),
        ("9.1.0", "## 9.1.0 (2026-01-31)", "CITATION.cff names"),
    ],
)
def test_a_release_is_refused_where_its_version_is_not_told_alike(version, heading, words, tmp_path):
    for name, content in (
        ("src/limbeck/version.py", f'__version__ = "{version}"\n'),
        ("CHANGELOG.md", f"# Changelog\n\n{heading}\n"),
        ("CITATION.cff", "version: 9.0.0\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/release", tmp_path / ".ci/release")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    done = subprocess.run([tmp_path / ".ci/release"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr
