"""An export of a student, written below the test's folder."""

import pytest

from limbeck.export import ExportRequest, export_model


@pytest.fixture
def export(tmp_path):
    """Export a student, by default into the folder `out`, and return the result."""

    def run(student, export_format="onnx", *, finish=None, **options):
        return export_model(
            ExportRequest(str(student), export_format, **{"output": tmp_path / "out", **options}), finish=finish
        )

    return run
