"""The `limbeck` command, also as `python -m limbeck`, as launchers of many processes start it."""

import atexit
import os
import sys


def main() -> None:
    """Run the command line in a process of its own, and end it with its exit code."""
    # A list, since the exit code is known only after `_leave` is registered: before whatever else registers, so that it
    # is called last.
    status = [1]
    atexit.register(_leave, status)
    from limbeck.cli.start_notice import announce_start

    # One of several processes of a launcher speaks for all.
    if os.environ.get("RANK", "0") == "0":
        announce_start(sys.argv[1:])
    from limbeck.cli.main import run

    try:
        run()
    except SystemExit as end:
        status[0] = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    status[0] = 0


def _leave(status: list[int]) -> None:
    """End the process without the search for garbage in torch, which would take a second.

    Threads have ended and everything that was registered has run. Where output cannot be written, Python ends as usual.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return
    os._exit(status[0])


if __name__ == "__main__":
    main()
