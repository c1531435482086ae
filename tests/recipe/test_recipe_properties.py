"""Any data as a recipe, any text as a recipe file or an override: one line of refusal, or a recipe that is kept."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limbeck.core.yaml import DEEPEST, dump_yaml, parse_yaml
from limbeck.errors import LimbeckError, RecipeError
from limbeck.methods.registry import METHODS
from limbeck.recipe import Recipe, dump_recipe, load_recipe

GOOD: dict[str, Any] = {
    "name": "good run",
    "teacher": {"model": "some/teacher"},
    "student": {"shape": "6x384"},
    "corpus": {"sources": ["texts/"], "length": 128},
    "stages": [{"method": {"name": "minilmv2"}, "training": {"max_steps": 10}}],
    "evaluation": {"enabled": False},
}
quick = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

# What people write by mistake, and what nobody writes.
readings = st.sampled_from(["auto", "no", "1e5", "1:30", "2026-01-02", "0x1f", "~", "null", "6x384"])
words = readings | st.sampled_from(["", " ", "-", "a: b", "*a", "&a", "!x", "%"])
texts = words | st.text(max_size=12) | st.text("\0\n\r\t\x1b\u202e\u2028\ufeff\ud800[]{}:,#'\"", max_size=5)
extremes = st.sampled_from([10**30, 10**400, 1e308, float("nan"), float("inf"), -0.0])
numbers = st.integers(-3, 300) | st.integers() | st.floats() | extremes
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(), inner, max_size=4),
    max_leaves=8,
)


def paths_of(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested data."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in pairs for place in [(*above, key), *paths_of(value, (*above, key))]]


def fields_of(schema: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Every key that a recipe may have, as its schema names them."""
    found = []

    def walk(node: dict[str, Any], place: tuple[Any, ...]) -> None:
        for choice in (node, *node.get("anyOf", ())):
            inner = schema["$defs"][choice["$ref"].rsplit("/", 1)[-1]] if "$ref" in choice else choice
            for key, value in inner.get("properties", {}).items():
                found.append((*place, key))
                walk(value, (*place, key))
            if "$ref" in inner.get("items", {}):
                walk(inner["items"], (*place, 0))

    walk(schema, ())
    return found


PLACES = sorted({*paths_of(GOOD), *fields_of(Recipe.model_json_schema())}, key=str)


@st.composite
def nearly_good(draw: st.DrawFn) -> dict[str, Any]:
    """A good recipe with some values changed, put in or left out."""
    data = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        node: Any = data
        *above, last = draw(st.sampled_from(PLACES))
        for key in above:
            if isinstance(node, list):
                node = node[key] if key in range(len(node)) else {}
            elif isinstance(node, dict):
                if not isinstance(node.get(key), dict | list):
                    node[key] = {}
                node = node[key]
        if isinstance(node, dict) or (isinstance(node, list) and last in range(len(node))):
            node[last] = draw(values)
    return data


def kept_or_refused(data: Any, overrides: tuple[str, ...] = ()) -> None:
    """A recipe survives being written and read again, unchanged; anything else is one line."""
    try:
        recipe = load_recipe(data, overrides)
    except LimbeckError as error:
        assert 0 < len(str(error)) < 7000
        return
    assert load_recipe(parse_yaml(dump_recipe(recipe), "a dump")) == recipe
    assert load_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe  # Any reader of YAML has the same of it.


@quick
@given(values)
def test_any_data_is_refused_in_one_line(data: Any) -> None:
    kept_or_refused(data if isinstance(data, dict) else {"name": data})


@quick
@given(nearly_good())
def test_a_recipe_is_kept_or_refused_in_one_line(data: dict[str, Any]) -> None:
    before = copy.deepcopy(data)
    kept_or_refused(data)
    assert repr(data) == repr(before)


@quick
@given(st.text(max_size=60) | st.lists(st.sampled_from(PLACES) | texts.map(lambda text: (text,)), max_size=4).map(str))
def test_any_text_as_an_override(text: str) -> None:
    kept_or_refused(GOOD, (text,))


@quick
@given(st.sampled_from(PLACES), texts | values.map(str) | numbers.map(str))
def test_any_value_as_an_override(place: tuple[Any, ...], value: str) -> None:
    kept_or_refused(GOOD, (f"{'.'.join(map(str, place))}={value}",))


@quick
@given(st.sampled_from(sorted(METHODS)), st.data())
def test_any_option_of_any_method(name: str, data: st.DataObject) -> None:
    fields = sorted(METHODS[name].options.model_fields)
    options = data.draw(st.dictionaries(st.sampled_from(fields or ["none"]), values, max_size=2))
    kept_or_refused({**GOOD, "stages": [{"method": {"name": name, **options}}]})


@quick
@given(values)
def test_what_is_written_is_read_again(data: Any) -> None:
    """Of plain values that recipes can have: no lone surrogates or NEL, no number beyond 300 digits, one key once."""
    shown = ascii(data)
    if data != data or len(shown) > 300 or any(mark in shown for mark in ("\\ud8", "\\x85", "nan")):
        return
    try:
        text = dump_yaml(data)
        text.encode()
    except (UnicodeEncodeError, yaml.YAMLError):
        return
    assert parse_yaml(text, "a dump") == data


@quick
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_as_a_recipe_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = Path(tmp_path_factory.getbasetemp(), "any.yaml")
    path.write_bytes(content)
    with pytest.raises(RecipeError):
        load_recipe(path)


@quick
@given(st.text("[]{}&*a: -!|>'\"\n,?#%", max_size=40))
def test_any_signs_of_yaml(text: str) -> None:
    """What is read is plain: no aliases that share a list, and never deeper than it is bounded."""
    try:
        found = parse_yaml(text, "Text")
    except RecipeError:
        return
    assert depth(found) <= DEEPEST


def depth(data: Any) -> int:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return 1 + max(map(depth, inner), default=0)
