"""The `limbeck` command, also as `python -m limbeck`, as launchers of many processes start it."""

import atexit
import os
import sys

_STOPPED = 130
"""The exit code of Ctrl-C, as in `limbeck.cli.main`."""


def main() -> None:
    """Run the command line in a process of its own, and end it with its exit code."""
    # `_leave` is registered before anything else, since what is registered first is called last. The exit code is not
    # known yet: 1 stands for an error that is not caught.
    status = _Status(exit_code=1)
    atexit.register(_leave, status)
    from limbeck.cli.start_notice import announce_start

    # One of several processes of a launcher speaks for all.
    if os.environ.get("RANK", "0") == "0":
        announce_start(sys.argv[1:])

    try:
        # The import takes seconds, so Ctrl-C may come before `run` could answer it.
        from limbeck.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        status.exit_code = _STOPPED
        sys.exit(_STOPPED)
    except SystemExit as end:
        status.exit_code = _exit_code_of(end)
        raise
    status.exit_code = 0


class _Status:
    """The exit code with which the process ends, which may change until then."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code


def _exit_code_of(end: SystemExit) -> int:
    """Return the exit code of `sys.exit`, as Python has it: 0 for no argument, and 1 for a message."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    return 1


def _leave(status: _Status) -> None:
    """End the process without the search for garbage in torch, which would take a second.

    Threads have ended and everything that was registered has run. Where output cannot be written, Python ends as usual.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return
    os._exit(status.exit_code)


if __name__ == "__main__":
    main()
