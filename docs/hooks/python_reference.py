"""The Python reference is made of the docstrings, read from the sources; calls that are made of requests are imported.

`python docs/hooks/python_reference.py` writes it into the pages of `docs/reference/`, below the line that
names modules.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]
_PLACE = re.compile(r"<!-- (?P<modules>limbeck[\w., ]*): made of the docstrings by `make references` -->\n")
_WIDTH = 100
_PREFIXES = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
_LISTS = {
    "parameters": "Arguments",
    "attributes": "Attributes",
    "raises": "Raises",
    "returns": "Returns",
    "yields": "Yields",
}


def pages() -> list[Path]:
    """The pages that have a place for the reference of modules."""
    return [path for path in sorted((ROOT / "docs/reference").glob("*.md")) if _PLACE.search(path.read_text("utf-8"))]


def with_reference(text: str) -> str:
    """Put the reference of the modules that the page names below their line."""
    found = _PLACE.search(text)
    assert found is not None, "the page names modules"
    parts = [part for name in found["modules"].split(", ") for part in _module(name)]
    return "\n\n".join([text[: found.end()].rstrip(), *parts]) + "\n"


@cache
def _package() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src"], allow_inspection=False)
    loader.load("limbeck")
    return loader.modules_collection


def _module(name: str) -> Iterator[str]:
    module = _package()[name]
    yield f"## {name}"
    yield from _docstring(module)
    for member in _public(module):
        yield from _object(member, member.name, "###")


def _public(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Object]:
    """What is told of: the names that a module exports, or else defines, where they have a docstring."""
    exported = parent.exports if isinstance(parent, griffe.Module) and parent.exports else None
    names = [str(name) for name in exported] if exported is not None else list(parent.members)
    for name in names:
        member = parent.members.get(name)
        if member is None or name.startswith("_") or (member.is_alias and exported is None):
            continue
        found = member.final_target if isinstance(member, griffe.Alias) else member
        if found.is_module and parent.path == "limbeck":  # It is called as the function of its name.
            found = _package()["limbeck.api"].members[name].final_target
        if isinstance(found, griffe.Attribute) and str(found.value).startswith("python_call("):
            found = _made_call(found)
        if found.docstring is not None and not found.is_module:
            yield found


def _made_call(attribute: griffe.Attribute) -> griffe.Function:
    """Return a function that `limbeck.api.calls.python_call` makes of a request, as it is when it is imported."""
    call = getattr(importlib.import_module(attribute.module.path), attribute.name)
    signature = inspect.signature(call)
    parameters = []
    for parameter in signature.parameters.values():
        default = None if parameter.default is parameter.empty else _source_of(parameter.default)
        kind = griffe.ParameterKind[parameter.kind.name.lower()]
        parameters.append(griffe.Parameter(parameter.name, annotation=parameter.annotation, kind=kind, default=default))
    returned = signature.return_annotation
    return griffe.Function(
        attribute.name,
        parameters=griffe.Parameters(*parameters),
        returns=getattr(returned, "__name__", returned),
        docstring=griffe.Docstring(inspect.getdoc(call) or ""),
        parent=attribute.parent,
    )


def _source_of(default: Any) -> str:
    """Return a default as a source has it."""
    return json.dumps(default) if isinstance(default, str) else repr(default)


def _object(found: griffe.Object, name: str, level: str) -> Iterator[str]:
    yield f"{level} {name}"
    signature = _signature(found)
    if signature:
        yield f"```python\n{signature}\n```"
    yield from _docstring(found)
    if isinstance(found, griffe.Class):
        members = list(_public(found))
        values = [member for member in members if isinstance(member, griffe.Attribute)]
        if values:
            yield "**Attributes**\n\n" + "\n".join(map(_value, values))
        if inherited := list(_inherited(found)):
            yield "**Also**\n\n" + "\n".join(inherited)
        for member in members:
            if member not in values:
                yield from _object(member, f"{name}.{member.name}", level + "#")


def _inherited(found: griffe.Class) -> Iterator[str]:
    """List what a result has of the kinds of results, a line each."""
    for name, member in found.inherited_members.items():
        target = member.final_target
        is_told = isinstance(target, griffe.Function) and target.path.startswith("limbeck.api.")
        if is_told and not name.startswith("_") and target.docstring is not None:
            call = " ".join(_signature(target).removeprefix("def ").split()).replace("( ", "(").replace(", )", ")")
            yield f"- `{call}`: {_one_line(target.docstring.value.split(chr(10) * 2)[0])}"


def _value(found: griffe.Attribute) -> str:
    assert found.docstring is not None
    kind = f" (`{found.annotation}`)" if found.annotation is not None else ""
    return f"- `{found.name}`{kind}: {_one_line(found.docstring.value)}"


def _signature(found: griffe.Object) -> str:
    if isinstance(found, griffe.Attribute):
        return f"{found.name}: {found.annotation}" if found.annotation is not None else ""
    if isinstance(found, griffe.Class):
        bases = ", ".join(str(base) for base in found.bases)
        arguments = list(found.parameters)
        return _lines(f"class {found.name}", arguments, "") if arguments else f"class {found.name}({bases})"
    assert isinstance(found, griffe.Function)
    returned = f" -> {found.returns}" if found.returns is not None else ""
    return _lines(f"def {found.name}", list(found.parameters), returned)


def _lines(start: str, parameters: list[griffe.Parameter], returned: str) -> str:
    """The signature in one line where it fits, else a line for each argument."""
    given = [parameter for parameter in parameters if parameter.name not in ("self", "cls")]
    words = []
    for before, parameter in zip([None, *given], given, strict=False):
        only = griffe.ParameterKind.keyword_only
        starred = before is not None and before.kind in (only, griffe.ParameterKind.var_positional)
        if parameter.kind is only and not starred:
            words.append("*")
        words.append(_parameter(parameter))
    line = f"{start}({', '.join(words)}){returned}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{start}(", *(f"    {word}," for word in words), f"){returned}"])


def _parameter(parameter: griffe.Parameter) -> str:
    word = _PREFIXES.get(parameter.kind, "") if parameter.kind is not None else ""
    word += parameter.name
    if parameter.annotation is not None:
        word += f": {parameter.annotation}"
    if parameter.default is None or parameter.kind in _PREFIXES:
        return word
    return f"{word} = {parameter.default}" if parameter.annotation is not None else f"{word}={parameter.default}"


def _docstring(found: griffe.Object) -> Iterator[str]:
    if found.docstring is None:
        return
    for section in found.docstring.parse("google", warnings=False):
        kind = section.kind.value
        if kind == "text":
            yield section.value
        elif kind == "admonition" and section.value.kind == "example":
            yield f"**Example**\n\n```python\n{section.value.contents}\n```"
        elif kind == "admonition":
            yield f"**{section.title}** {_one_line(section.value.contents)}"
        elif kind == "examples":
            yield "\n".join(
                f"```python\n{text}\n```" if form.value == "examples" else text for form, text in section.value
            )
        elif kind in _LISTS:
            yield f"**{_LISTS[kind]}**\n\n" + "\n".join(_item(kind, item) for item in section.value)
        else:
            raise ValueError(f"{found.path}: a section of kind '{kind}' has no form here")


def _item(kind: str, item: griffe.DocstringElement) -> str:
    text = _one_line(item.description)
    if kind in ("parameters", "attributes"):
        return f"- `{item.name}`: {text}"  # type: ignore[attr-defined]
    return f"- `{item.annotation}`: {text}" if kind == "raises" else f"- {text}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for page in pages():
        page.write_text(with_reference(page.read_text("utf-8")), encoding="utf-8")
