"""Plugin files: named by the user alone, run once when a registry is read, with one line where they fail."""

import hashlib
import json
import os
import sys

import pytest

from limbeck.core.plugins import VARIABLE, load_plugins, plugins_in_use, use_plugins
from limbeck.errors import PluginError
from limbeck.methods import METHODS
from limbeck.recipe import load_recipe
from limbeck.report import sections
from limbeck.report.subjects import RunFolder
from tests.golden.committed import FOLDERS

GOOD = """
    from limbeck.methods import Method, MethodOptions, register_method

    class Options(MethodOptions):
        share: float = 0.5

    register_method(Method("from_a_file", "Of a file.", Options, lambda options, pairing: []))
"""


def test_a_file_runs_once_when_a_registry_is_read_even_if_it_reads_one(write_plugin, tmp_path):
    log = tmp_path / "log"
    path = write_plugin(f"""{GOOD}
    from limbeck.methods import METHODS
    with open({str(log)!r}, "a") as file:
        file.write(str(len(METHODS)) + " ")
    """)
    use_plugins([path])
    assert not log.exists()
    assert "from_a_file" in METHODS
    assert METHODS["from_a_file"].summary == "Of a file."
    assert log.read_text() == f"{len(METHODS)} "
    assert plugins_in_use() == [{"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}]


def test_processes_that_are_started_know_the_files(write_plugin, monkeypatch):
    first, second = write_plugin("", "first.py"), write_plugin("", "second.py")
    monkeypatch.chdir(first.parent)
    use_plugins(["first.py"])
    use_plugins([second, first])
    assert os.environ[VARIABLE].split(os.pathsep) == [str(first), str(second)]


def test_a_recipe_names_methods_of_a_file_but_no_file(write_plugin, tiny_recipe):
    path = write_plugin(GOOD)
    with pytest.raises(Exception, match="plugins"):
        load_recipe(tiny_recipe | {"plugins": [str(path)]})
    tiny_recipe["stages"][0]["method"] = {"name": "from_a_file", "share": 0.25}
    with pytest.raises(Exception, match=r"Unknown method 'from_a_file'.*Register your own methods with --plugin FILE"):
        load_recipe(tiny_recipe)
    use_plugins([path])
    assert load_recipe(tiny_recipe).stages[0].method["share"] == 0.25
    tiny_recipe["stages"][0]["method"]["sahre"] = 1
    with pytest.raises(Exception, match="Did you mean 'share'"):
        load_recipe(tiny_recipe)


SECTION = """
    from limbeck.core.blocks import Paragraph
    from limbeck.report.sections import section
    from limbeck.report.subjects import RunFolder

    @section(RunFolder, "Last")
    def last(run):
        yield Paragraph("The last section.")

    @section(RunFolder, "Memory", after="Training")
    def memory(run):
        yield Paragraph(f"{run.record.peak_memory_bytes} bytes")
"""


@pytest.mark.parametrize("is_loaded_before", [False, True])
def test_a_report_has_the_sections_of_a_file(write_plugin, tmp_path, limbeck, is_loaded_before):
    path = write_plugin(SECTION)
    if is_loaded_before:
        # Limbeck's sections are registered after those of the file.
        own = sections._SECTIONS.pop(RunFolder)
        use_plugins([path])
        load_plugins()
        sections._SECTIONS[RunFolder] |= own
    page = tmp_path / "page.html"
    shown = limbeck.shown("--plugin", path, "report", FOLDERS["finished"], "--output", page, "--json")
    titles = json.loads(shown)["sections"]
    assert titles[titles.index("Training") + 1] == "Memory" and titles[-1] == "Last"
    assert "The last section." in page.read_text(encoding="utf-8")


TAKEN = "from limbeck.methods import METHODS, register_method\n\nregister_method(METHODS['minilm'])\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\nundefined_name\n", r"line 2: NameError: name 'undefined_name' is not defined\.$"),
        ("def f(:\n", r"line 1: SyntaxError: "),
        ("import no_such_module_at_all\n", r"line 1: ModuleNotFoundError: No module named 'no_such_module_at_all'\.$"),
        (TAKEN, r"line 3: The method 'minilm' already exists; give yours a different name\.$"),
    ],
)
def test_a_file_that_fails_is_one_line_every_time(write_plugin, code, said):
    path = write_plugin(code)
    use_plugins([path])
    for _ in range(2):
        with pytest.raises(PluginError, match=said) as caught:
            METHODS["minilm"]
        assert f"The plugin '{path}' cannot be loaded" in str(caught.value)
    assert not [name for name, module in sys.modules.items() if getattr(module, "__file__", None) == str(path)]
    assert plugins_in_use() == []


def test_a_path_that_is_no_python_file_is_refused_at_once(tmp_path, write_plugin, monkeypatch):
    text = write_plugin("", "text.txt")
    for path, said in (
        (tmp_path / "none.py", "does not exist"),
        (text, "is not a Python file"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(PluginError, match=said):
            use_plugins([path])
    assert VARIABLE not in os.environ
    for path, said in (
        (tmp_path / "gone.py", r"gone\.py' cannot be loaded: FileNotFoundError"),
        (text, "not a Python file"),
    ):
        monkeypatch.setenv(VARIABLE, str(path))
        with pytest.raises(PluginError, match=said):
            load_plugins()


def test_a_method_of_a_file_is_shown_without_a_card(write_plugin, limbeck):
    path = write_plugin("""
        from dataclasses import replace
        from limbeck.methods import METHODS, register_method

        register_method(replace(METHODS["minilm"], name="minilm_again", summary="The same once more.", citation=None))
    """)
    done = limbeck("--plugin", path, "methods", "minilm_again", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "The same once more." in shown["card"] and shown["citation"] is None
    assert [term["objective"] for term in shown["terms"]] == ["relation_kl", "relation_kl"]
