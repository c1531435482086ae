"""The Dockerfile copies the files that there are, runs as nobody in particular, and pleases its linter."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_copied_files_are_sent_and_are_enough():
    copied = [
        path for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()
    ]
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / path).exists() for path in copied)
    # What the build of a wheel reads: the readme, the licence, and the cards that the package links to.
    assert {PROJECT["readme"], *PROJECT["license-files"], "docs/methods", "src", "pyproject.toml"} == set(copied)


def test_it_asks_for_the_versions_of_the_project():
    (torch,) = (line for line in PROJECT["dependencies"] if line.startswith("torch>"))
    assert f'"{torch}"' in DOCKERFILE
    (extra,) = re.findall(r"^ARG EXTRAS=(\w+)$", DOCKERFILE, re.MULTILINE)
    assert extra in PROJECT["optional-dependencies"]
    (python,) = re.findall(r"^ARG BASE=python:(3\.\d+)-slim$", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_it_runs_limbeck_as_nobody_in_particular():
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["1001"]
    assert DOCKERFILE.endswith('ENTRYPOINT ["limbeck"]\nCMD ["quickstart"]\n')
    assert "limbeck" in PROJECT["scripts"]


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_the_linter_has_nothing_to_say():
    done = subprocess.run(
        ["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
