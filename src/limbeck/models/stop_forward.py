"""The end of a forward before its last layer."""


class StopForward(Exception):  # noqa: N818 - control flow, not an error
    """Raised to leave a forward when all that is wanted of it is recorded; caught by the code that wants it."""
