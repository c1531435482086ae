"""Pushing an export to a repository of the Hub, by the ordinary login of `huggingface_hub`."""

from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from limbeck.errors import OutputError, shorten_error
from limbeck.models.hub_files import hub_answers

_NO_ACCESS = (401, 403, 404)
"""HTTP statuses of the Hub for a missing login, for missing rights, and for a repository that is missing or hidden."""


def check_repository(name: str, option: str = "--push") -> None:
    """Refuse a text that cannot be the name of a repository, without the network.

    Args:
        name: The text.
        option: The option or argument that it was given by.

    Raises:
        OutputError: naming the rule.
    """
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise OutputError(
            f"{option} '{name}' is not a valid name for a Hub repository: {shorten_error(error)}"
        ) from None
    if "/" not in name:
        raise OutputError(f"{option} '{name}' has no owner; give owner/name.")


def check_login() -> None:
    """Refuse to begin without a token or the network, before minutes go into the export.

    Raises:
        OutputError: with what to do.
    """
    if get_token() is None:
        raise OutputError("You are not logged in to the Hub; run hf auth login, or set HF_TOKEN to your token.")
    if constants.HF_HUB_OFFLINE:
        raise OutputError("HF_HUB_OFFLINE is set, so nothing can be pushed; unset it.")
    if not hub_answers():
        raise OutputError(f"The Hub ({constants.ENDPOINT}) cannot be reached; check the connection.")


def push_folder(folder: Path, repository: str, *, private: bool, message: str, api: HfApi | None = None) -> str:
    """Upload a folder to a model repository, which is created if it does not exist.

    Args:
        folder: All files in it are uploaded.
        repository: `owner/name`.
        private: Whether a new repository is private; an existing one keeps its visibility.
        message: Message of the commit.
        api: The Hub's client; None makes one with the user's login.

    Returns:
        The repository's address.

    Raises:
        OutputError: if the Hub refuses, or cannot be reached.
    """
    if api is None:
        api = HfApi()
    try:
        address = api.create_repo(repository, repo_type="model", private=private, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, repo_type="model", folder_path=str(folder), commit_message=message)
    except HfHubHTTPError as error:
        reason = error.server_message or shorten_error(error)
        hint = ""
        if error.response is not None and error.response.status_code in _NO_ACCESS:
            hint = " Check the name and that your token may write: hf auth whoami."
        raise OutputError(f"The Hub refused '{repository}': {reason.rstrip('.')}.{hint}") from error
    except Exception as error:  # A broken connection raises what the client's HTTP library has for it.
        raise OutputError(
            f"'{repository}' could not be pushed: {shorten_error(error)}; the exported folder is kept, so push it "
            "again later."
        ) from error
    return str(address)
