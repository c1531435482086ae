"""Pushing with a Hub that is not there: names, login, what is uploaded, and one line for each failure."""

from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HfHubHTTPError

from limbeck.errors import OutputError
from limbeck.export import pushing
from limbeck.export.pushing import check_login, check_repository, push_folder


class FakeHub:
    """Notes what it is asked; raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[tuple[str, dict]] = []

    def create_repo(self, repo_id, **options):
        self.calls.append(("create", {"repo_id": repo_id, **options}))
        return type("Address", (str,), {"repo_id": repo_id})(f"https://hub/{repo_id}")

    def upload_folder(self, **options):
        self.calls.append(("upload", options))
        if self.error is not None:
            raise self.error


def refusal(status: int) -> HfHubHTTPError:
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return HfHubHTTPError("refused", response=response, server_message="Not yours.")


class NoRouteError(Exception):
    """What an HTTP library raises for a broken connection is its own business, and no OSError."""


def test_a_folder_is_uploaded_to_a_repository_that_is_made(tmp_path):
    hub = FakeHub()
    assert push_folder(tmp_path, "me/mine", private=True, message="New", api=hub) == "https://hub/me/mine"
    (first, made), (second, uploaded) = hub.calls
    assert (first, second) == ("create", "upload")
    assert made == {"repo_id": "me/mine", "repo_type": "model", "private": True, "exist_ok": True}
    assert uploaded == {
        "repo_id": "me/mine", "repo_type": "model", "folder_path": str(tmp_path), "commit_message": "New"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (refusal(403), r"did not take 'me/mine': Not yours\. Check the name and that your token may write"),
        (refusal(500), r"did not take 'me/mine': Not yours\.$"),
        (NoRouteError("no route"), r"'me/mine' could not be pushed: no route; the folder is kept"),
        (OSError("disk on fire"), "could not be pushed: disk on fire"),
    ],
)
def test_a_failure_is_one_line(tmp_path, error, part):
    with pytest.raises(OutputError, match=part) as caught:
        push_folder(tmp_path, "me/mine", private=False, message="New", api=FakeHub(error))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["me/mine", "my-org/a.model_v2"])
def test_names_of_repositories(name):
    check_repository(name)


@pytest.mark.parametrize("name", ["", "mine", "a b/c", "a/b/c", "me/mine.git", "-me/x", "me/x--y"])
def test_what_is_no_repository(name):
    with pytest.raises(OutputError, match="--push"):
        check_repository(name)


def test_login_and_network_are_checked_first(monkeypatch):
    monkeypatch.setattr(pushing, "get_token", lambda: None)
    with pytest.raises(OutputError, match="not logged in to the Hub: hf auth login, or set HF_TOKEN"):
        check_login()
    monkeypatch.setattr(pushing, "get_token", lambda: "hf_x")
    monkeypatch.setattr(pushing, "constants", SimpleNamespace(HF_HUB_OFFLINE=True, ENDPOINT="https://hub"))
    with pytest.raises(OutputError, match="HF_HUB_OFFLINE is set"):
        check_login()
    monkeypatch.setattr(pushing, "constants", SimpleNamespace(HF_HUB_OFFLINE=False, ENDPOINT="https://hub"))
    monkeypatch.setattr(pushing, "hub_answers", lambda: False)
    with pytest.raises(OutputError, match="https://hub\\) cannot be reached"):
        check_login()
    monkeypatch.setattr(pushing, "hub_answers", lambda: True)
    check_login()
