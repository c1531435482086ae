"""What a maintainer's tools are told is what the repository has."""

import os
import tomllib
from pathlib import Path

import yaml

import limbeck

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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
