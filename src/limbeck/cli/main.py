"""The command line: commands, and errors in one line."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from limbeck.cli import (
    benchmark,
    compare,
    distill,
    evaluate,
    export,
    inspect,
    methods,
    quickstart,
    recipe,
    report,
    schema,
    search,
    status,
    validate,
)
from limbeck.errors import LimbeckError
from limbeck.version import __version__

errors = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"limbeck {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Distil pretrained Transformer encoders into small, fast students."""
    # `run` looks for --debug itself, since an error may come before this is called.


def build_app() -> typer.Typer:
    """Put the commands together; each lives in a file of its own."""
    app = typer.Typer(
        name="limbeck",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for module in (
        quickstart,
        distill,
        validate,
        recipe,
        schema,
        methods,
        benchmark,
        evaluate,
        export,
        compare,
        search,
        status,
        report,
        inspect,
    ):
        module.register(app)
    return app


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that worker processes are ended too."""
    errors.print("Stopped by SIGTERM; what was finished is kept.", highlight=False)
    sys.exit(128 + number)


def run() -> None:
    """Run the command line and exit: 0 done, 1 a run that failed or was stopped, 2 a mistake in what was asked.

    75 is for a run that SIGTERM stopped, and that goes on with --resume; 143 for anything else that it stopped.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads that spin at barriers for long lose their core to any other process: a busy machine then trains three
        # times slower than its share. A short spin costs next to nothing on an idle one. Read when torch is imported.
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with suppress(ValueError):  # Only the main thread may listen.
        signal.signal(signal.SIGTERM, _end)
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        build_app()(args=arguments, prog_name="limbeck", standalone_mode=True)
    except LimbeckError as error:
        if debug:
            raise
        if not error.said_elsewhere:
            errors.print(f"[bold red]error:[/] {_escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("Stopped.", highlight=False)
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        message = _escape(f"{type(error).__name__}: {error}")
        errors.print(
            f"[bold red]error:[/] {message} (a fault in limbeck: run again with --debug and report what it prints)",
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(1)


def _escape(text: str) -> str:
    """Keep a message on one line, and its brackets from being read as markup."""
    return " ".join(text.split()).replace("[", r"\[")
