"""Docstrings begin with a noun phrase, or with a command whose object is a noun."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import limbeck

PACKAGE = Path(limbeck.__file__).parent
#: Beginnings with a clause where a noun belongs: "Return what a run leaves." for "Return the record of a run."
RIDDLE = re.compile(
    r"(Say|Tell|What|How|Those|Such|One)\b"
    r"|Return (what|how|whether those|those|one|such|which|who)\b"
    r"|Whether (nobody|no one|somebody|one|those)\b"
)
#: The number of first sentences that break the rule. It only falls.
LEFT = 329


def first_lines() -> Iterator[tuple[str, str]]:
    """Yield place and first line of each docstring of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            docstring = ast.get_docstring(node)
            if docstring:
                line = getattr(node, "lineno", 1)
                yield f"{path.relative_to(PACKAGE)}:{line}", docstring.splitlines()[0]


def test_first_sentences_have_nouns():
    riddles = [f"{place}: {line}" for place, line in first_lines() if RIDDLE.match(line)]
    assert len(riddles) <= LEFT, "begin with a noun phrase or a command with nouns:\n" + "\n".join(riddles)


def test_the_rule_tells_nouns_from_clauses():
    assert RIDDLE.match("Return what a run leaves.") and RIDDLE.match("How a layer attends.")
    assert not RIDDLE.match("Return the record of a run.") and not RIDDLE.match("Whether the run has ended.")
