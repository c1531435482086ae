"""The lists of methods in pages are made from the registry and the cards: a new method is in them by itself.

`python docs/hooks/method_lists.py` writes them into the index of the cards, the README and the site's menu.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from transformers import BertConfig

from limbeck.errors import RecipeError
from limbeck.methods import METHODS, Method, Pairing, Term
from limbeck.methods.cards import RECIPE_CARDS, read_card
from limbeck.models.blueprint import parse_blueprint
from limbeck.models.families import Shape, shape_of
from limbeck.models.students import student_config
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
_COLUMNS = ("method", "what is taught", "heads", "widths", "tasks", "cost", "choose it when")


def index_table() -> str:
    """Return the table of `docs/methods/README.md`."""
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *(_index_row(name) for name in METHODS)]
    return "".join(f"| {' | '.join(cells)} |\n".replace("| --- ", "|---").replace("---| |", "---|") for cells in lines)


def _index_row(name: str) -> list[str]:
    method = METHODS[name]
    tasks = "all" if set(method.tasks) == set(METHODS["minilm"].tasks) else ", ".join(method.tasks)
    taught = method.summary.split(";")[0].rstrip(".")
    taught = taught if taught[:2].isupper() else taught[0].lower() + taught[1:]
    chosen = re.search(r"^## Choose it when\n\n(.*?)\n\n", read_card(name), re.DOTALL | re.MULTILINE)
    assert chosen is not None, f"the card of {name} says when to choose it"
    when = _clause(chosen[1])
    free = ["free" if _composes(method, student) else "equal" for student in ("6x768h6", "6x384h12")]
    return [f"[{name}]({name}.md)", taught, *free, tasks, _cost(method), when[0].lower() + when[1:]]


def _clause(text: str) -> str:
    """The first clause of a text."""
    return re.split(r"[.;:]\s|\s\(|\.$", " ".join(text.split()))[0]


def _terms(method: Method, student: Shape, **options: object) -> list[Term]:
    pairing = Pairing(student, facts_of_shape(shape_of(BertConfig())), method.tasks[0])
    return method.compose(method.options(**options), pairing)


def _composes(method: Method, student: str) -> bool:
    try:
        return bool(_terms(method, shape_of(student_config(parse_blueprint(student), BertConfig()))))
    except RecipeError:
        return False


def _cost(method: Method) -> str:
    """How far the models run and what is held, stage by stage, in the words of the table below the index."""
    student = shape_of(student_config(parse_blueprint("6x768h12"), BertConfig()))
    own = [stage for stage in method.stages if stage["name"] == method.name] or [{"name": method.name}]
    found = []
    for stage in own:
        terms = _terms(method, student, **{key: value for key, value in stage.items() if key != "name"})
        kinds = {key.name for term in terms for key in term.student}
        layers = {key.layer for term in terms for key in term.student if key.layer}
        if any(OBJECTIVES[term.objective].takes_layers for term in terms):
            found.append("all layers, and scores" if "logits" in kinds else "all layers")
        elif "logits" in kinds:
            found.append("scores")
        elif "pooled" in kinds:
            found.append("whole models")
        else:
            found.append("one layer" if len(layers) == 1 else "mapped layers")
    return ", then ".join(found)


def with_index(text: str) -> str:
    """Put the table, and the names of the methods with a mapping, into the index of the cards."""
    mapped = [name for name, method in METHODS.items() if "mapping" in method.options.model_fields]
    names = f"{', '.join(mapped[:-1])} and {mapped[-1]}"
    text = re.sub(r"(?<=have the option `mapping`: ).*(?=\.\n)", names, text)
    return re.sub(r"\| method \|.*?\n(?!\|)", lambda _: index_table(), text, count=1, flags=re.DOTALL)


def with_names(text: str) -> str:
    """Put the names into the README's row of methods."""
    names = ", ".join(f"`{name}`" for name in METHODS)
    return re.sub(r"^\| methods \| (?:`\w+`(?:, )?)+", lambda _: f"| methods | {names}", text, flags=re.MULTILINE)


def with_menu(text: str) -> str:
    """Put the cards into the site's menu."""
    cards = "".join(f"      - {name}: methods/{name}.md\n" for name in (*METHODS, *RECIPE_CARDS))
    return re.sub(r"(?:      - \w+: methods/\w+\.md\n)+", lambda _: cards, text)


#: Page to the function that puts its list in.
PAGES: dict[str, Callable[[str], str]] = {
    "docs/methods/README.md": with_index,
    "README.md": with_names,
    "mkdocs.yml": with_menu,
}


if __name__ == "__main__":
    for page, put in PAGES.items():
        path = ROOT / page
        path.write_text(put(path.read_text(encoding="utf-8")), encoding="utf-8")
