"""Pushing with a Hub that is not there: names, login, uploads, and one line for each failure."""

from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HfHubHTTPError

from limbeck.errors import OutputError
from limbeck.export import pushing
from limbeck.export.pushing import check_login, check_repository, push_folder


def test_a_folder_is_uploaded_to_a_repository_that_is_made(tmp_path, hub):
    assert push_folder(tmp_path, "me/mine", private=True, message="New", api=hub) == "https://hub/me/mine"
    repository = {"repo_id": "me/mine", "repo_type": "model"}
    assert hub.created == {**repository, "private": True, "exist_ok": True}
    assert hub.uploaded == {**repository, "folder_path": str(tmp_path), "commit_message": "New"}


class NoRouteError(Exception):
    """What an HTTP library raises for a broken connection is its own business, and no OSError."""


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (403, r"The Hub refused 'me/mine': Not yours\. Check the name and that your token may write"),
        (500, r"The Hub refused 'me/mine': Not yours\.$"),
        (NoRouteError("no route"), r"'me/mine' could not be pushed: no route; the exported folder is kept"),
        (OSError("disk on fire"), "could not be pushed: disk on fire"),
    ],
)
def test_a_failure_is_one_line(tmp_path, hub, error, part):
    if isinstance(error, int):
        response = SimpleNamespace(status_code=error, headers={}, request=None)
        error = HfHubHTTPError("refused", response=response, server_message="Not yours.")
    hub.error = error
    with pytest.raises(OutputError, match=part):
        push_folder(tmp_path, "me/mine", private=False, message="New", api=hub)


def test_names_of_repositories():
    for name in ("me/mine", "my-org/a.model_v2"):
        check_repository(name)  # does not raise
    for name in ("", "mine", "a b/c", "a/b/c", "me/mine.git", "-me/x", "me/x--y"):
        with pytest.raises(OutputError, match="--push"):
            check_repository(name)


def test_login_and_network_are_checked_first(monkeypatch):
    def meet(token, offline, answers):
        monkeypatch.setattr(pushing, "get_token", lambda: token)
        monkeypatch.setattr(pushing, "constants", SimpleNamespace(HF_HUB_OFFLINE=offline, ENDPOINT="https://hub"))
        monkeypatch.setattr(pushing, "hub_answers", lambda: answers)

    for state, part in (
        ((None, False, True), "not logged in to the Hub; run hf auth login, or set HF_TOKEN"),
        (("hf_x", True, True), "HF_HUB_OFFLINE is set"),
        (("hf_x", False, False), r"https://hub\) cannot be reached"),
    ):
        meet(*state)
        with pytest.raises(OutputError, match=part):
            check_login()
    meet("hf_x", False, True)
    check_login()  # does not raise
