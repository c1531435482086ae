"""`limbeck --plugin FILE`: methods of one's own are commands' methods too, with a card or without one."""

import json
import subprocess
import sys

PLUGIN = """
from dataclasses import replace
from limbeck.methods import METHODS, register_method

register_method(replace(METHODS["minilm"], name="minilm_again", summary="The same once more.", citation=None))
"""


def test_a_method_from_a_file_is_shown(tmp_path):
    # In a process of its own: what is registered stays.
    (tmp_path / "mine.py").write_text(PLUGIN)
    call = [sys.executable, "-m", "limbeck", "--plugin", tmp_path / "mine.py", "methods", "minilm_again", "--json"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "The same once more." in shown["card"]
    assert shown["citation"] is None
    assert [term["objective"] for term in shown["terms"]] == ["relation_kl", "relation_kl"]
