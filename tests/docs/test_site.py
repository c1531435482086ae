"""The site is built without a warning, and fetches nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT

SITE = ROOT / "build" / "site"
FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["'](?:https?:)?//""")


@pytest.mark.slow
def test_the_site_is_built_without_warnings():
    pytest.importorskip("mkdocs", reason="the site is built with the extra `docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        place = page.path.removeprefix("docs/").replace("README.md", "index.md").replace(".md", ".html")
        assert not page.path.startswith("docs/") or (SITE / place).is_file(), place
    made = list(SITE.rglob("*.html"))
    assert not [path for path in made if FETCHED.search(path.read_text(encoding="utf-8"))]
    assert "relation_kl" in (SITE / "reference/objectives.html").read_text(encoding="utf-8")
    assert "explosion_factor" in (SITE / "recipe_reference.html").read_text(encoding="utf-8")
    assert (SITE / "repository/benchmarks/results/training_step.json").is_file()
