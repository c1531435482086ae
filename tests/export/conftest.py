"""An export of a student, written below the test's folder, and a Hub that is not there."""

import pytest


@pytest.fixture
def export(tmp_path):
    """Export a student, by default into the folder `out`, and return the result."""
    from limbeck.export import ExportRequest, export_model  # Here, for the process that spreads the tests.

    def run(student, export_format="onnx", *, finish=None, **options):
        request = ExportRequest(str(student), export_format, **{"output": tmp_path / "out", **options})
        return export_model(request, finish=finish)

    return run


class FakeHub:
    """Notes its calls, and raises the error that it has at an upload."""

    def __init__(self):
        self.error, self.created, self.uploaded = None, {}, {}

    def create_repo(self, repo_id, **options):
        self.created = {"repo_id": repo_id, **options}
        return type("Address", (str,), {"repo_id": repo_id})(f"https://hub/{repo_id}")

    def upload_folder(self, **options):
        self.uploaded = options
        if self.error is not None:
            raise self.error


@pytest.fixture
def hub():
    return FakeHub()
