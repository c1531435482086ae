"""The command line: commands, errors in one line, and exit codes.

A launcher such as torchrun may start several processes of one command. One of them, of index 0, prints errors.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.text import Text

from limbeck.cli.benchmark import benchmark
from limbeck.cli.command import EXAMPLES
from limbeck.cli.compare import compare
from limbeck.cli.distill import distill
from limbeck.cli.doctor import doctor
from limbeck.cli.evaluate import evaluate
from limbeck.cli.examples import CommandWithExamples
from limbeck.cli.export import export
from limbeck.cli.faults import name_fault
from limbeck.cli.finetune import finetune
from limbeck.cli.finish import finish
from limbeck.cli.inspect import inspect
from limbeck.cli.methods import methods
from limbeck.cli.quickstart import quickstart
from limbeck.cli.recipe import recipe, schema, validate
from limbeck.cli.report import report
from limbeck.cli.search import search
from limbeck.cli.start_notice import is_quiet
from limbeck.cli.status import status
from limbeck.cli.teach import teach
from limbeck.cli.trim import trim
from limbeck.cli.usage import UsageError, is_help, usage_message
from limbeck.cli.value_words import name_values
from limbeck.core.blocks import counted
from limbeck.core.escaping import TerminalConsole
from limbeck.core.plugins import use_plugins
from limbeck.errors import MOST_MISTAKES, LimbeckError, RecipeError
from limbeck.version import __version__

errors = TerminalConsole(stderr=True)

PANELS: dict[str, tuple[typer.Typer | Callable[..., None], ...]] = {
    "Get started": (quickstart, doctor, methods, recipe, validate, schema),
    "Distil and search": (finetune, teach, distill, finish, compare, search, status),
    "Measure and look inside": (evaluate, benchmark, inspect),
    "Show and deploy": (report, export, trim),
}
"""The commands, as `limbeck --help` groups them."""

SHARED_BY_PROCESSES = ("distill", "search", "teach")
"""Commands that several processes of a launcher carry out together."""

_WRONG_USAGE = 2
"""Exit code of a call that typer refuses, and of a group of commands without arguments, which shows its help."""
_FAULT = 1
"""Exit code of a command that failed by an error that limbeck does not expect."""
_STOPPED = 130
"""Exit code of a command that Ctrl-C stopped: 128 and the number of SIGINT, as shells have it."""
_DOWNLOAD_BARS_OFF = ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS")
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_EPILOG = "\n\n".join(
    (
        "Exit codes: 0 done; 1 failed, or Ctrl-C stopped a run, fine-tuning, evaluation, comparison or search; 2 a "
        "mistake in the call or its files; 75 SIGTERM stopped a run; 130 Ctrl-C stopped another command, or one that "
        "had not begun its work; 143 SIGTERM stopped another command, or one that had not begun its work. Continue a "
        "stopped run with --resume.",
        "Results go to standard output, everything else to standard error; --json prints only the result, as JSON.",
        "See docs/command_line.md for more. If something does not work, run limbeck doctor.",
    )
)


def _print_version(wanted: bool) -> None:
    """Print the version and end, for the callback of `--version`."""
    if wanted:
        typer.echo(f"limbeck {__version__}")
        raise typer.Exit


def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="Python file that registers your own methods, objectives, kinds of tasks, evaluators, teachings, "
            "starts, formats or sections of reports; may be repeated.",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Distil pretrained Transformer encoders into small, fast students."""
    # --debug is declared here for the help only. `run` looks for it itself, since an error may come before this call.
    if context.invoked_subcommand not in SHARED_BY_PROCESSES:
        _refuse_several_processes(context)
    if plugins:
        use_plugins(plugins)


def build_app() -> Any:
    """Put the commands together, as the group that typer hands to its parser."""
    app = typer.Typer(
        name="limbeck",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
        epilog=_EPILOG,
    )
    app.callback()(options)  # The options before a command, as in `limbeck --plugin FILE distill`.
    for panel, commands in PANELS.items():
        for command in commands:
            if isinstance(command, typer.Typer):
                app.add_typer(command, rich_help_panel=panel)
            else:
                examples = EXAMPLES[command]
                app.command(cls=CommandWithExamples, epilog=examples, rich_help_panel=panel)(command)
    group = typer.main.get_command(app)
    # Changes the types that the helps of all commands show.
    name_values(group, **_SETTINGS)
    return group


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that worker processes are ended too."""
    errors.print("Stopped by SIGTERM; finished work is kept. Run the same command again to continue.", highlight=False)
    sys.exit(128 + number)


def run() -> None:
    """Run the command line, and exit with a code of `docs/command_line.md`."""
    _settle_process()
    is_debugging = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        # With `standalone_mode=False` typer raises errors instead of printing them. It returns the exit code of a
        # command that raised `typer.Exit`, and the result of the function of any other command, which is no number.
        result = build_app()(args=arguments, prog_name="limbeck", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except UsageError as error:
        # The help of a command without arguments is a usage error too, and is printed already. If a launcher started
        # several processes, all have the same error, which the first one prints.
        if not is_help(error) and _process().index == 0:
            _print_error(usage_message(error))
        code = _WRONG_USAGE
    except LimbeckError as error:
        if is_debugging:
            raise
        if not error.printed_by_other_rank:
            _print_mistakes(error)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _STOPPED
    except Exception as error:
        if is_debugging:
            raise
        _print_error(name_fault(error, arguments))
        code = _FAULT
    # Typer itself may turn Ctrl-C into this code, and return it.
    if code == _STOPPED:
        errors.print("Stopped.", highlight=False)
    sys.exit(code)


def _settle_process() -> None:
    """Settle what concerns the whole process: garbage, threads, the bars of downloads, and SIGTERM."""
    # Imports leave no garbage. By default Python looks for it at every 700th new object, which takes a twentieth of the
    # time of a start.
    gc.set_threshold(5_000)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads of OpenMP spin at barriers. Where other processes need the cores, long spinning makes training three
        # times slower than its share of the machine; a short spin costs next to nothing on an idle machine. Importing
        # torch reads the variable.
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    _settle_download_bars(sys.argv[1:])
    with suppress(ValueError):  # Python refuses this outside of the main thread.
        signal.signal(signal.SIGTERM, _end)


def _settle_download_bars(arguments: list[str]) -> None:
    """Turn the progress bars of downloads off, unless they are printed to a terminal and the command is not quiet.

    The libraries read these variables when they are imported, which may be before the arguments are parsed.
    """
    if is_quiet(arguments) or not sys.stderr.isatty():
        for name in _DOWNLOAD_BARS_OFF:
            os.environ.setdefault(name, "1")


def _refuse_several_processes(context: typer.Context) -> None:
    """Refuse a command that each process of a launcher would carry out for itself.

    Raises:
        RecipeError: in all of the processes; the main one prints it.
    """
    process = _process()
    if process.count == 1:
        return
    # Typer exports no type for a group with `commands`, nor for a command with `params`. A name that is no command has
    # neither: typer refuses it later.
    name = context.invoked_subcommand
    command = getattr(context.command, "commands", {}).get(name)
    parameters = getattr(command, "params", ())
    way_out = "start it without the launcher"
    if any("--workers" in parameter.opts for parameter in parameters):
        way_out += " and give --workers"
    error = RecipeError(
        f"`limbeck {name}` runs in one process, but a launcher started {process.count}; {way_out}. Several processes "
        "share the work of `limbeck distill` and `limbeck search`."
    )
    error.printed_by_other_rank = process.index > 0
    raise error


@dataclass(frozen=True)
class _Process:
    """This process among those of a launcher: its number, from 0, and how many there are."""

    index: int
    count: int


def _process() -> _Process:
    """Return the place of this process among those of a launcher; without a launcher, this does not import torch."""
    if "RANK" not in os.environ:
        return _Process(index=0, count=1)
    from limbeck.core.ranks import process_count, process_index

    return _Process(process_index(), process_count())


def _print_mistakes(error: LimbeckError) -> None:
    """Print an error, or the mistakes that were found together, a line each."""
    if not error.mistakes:
        _print_error(str(error))
        return
    for line in error.mistakes[:MOST_MISTAKES]:
        _print_error(line)
    more = len(error.mistakes) - MOST_MISTAKES
    if more > 0:
        _print_error(f"{counted(more, 'more mistake')}.")


def _print_error(message: str) -> None:
    """Print a message on one line; brackets in it are not read as rich's markup."""
    line = Text.assemble(("error:", "bold red"), f" {' '.join(message.split())}")
    errors.print(line, highlight=False, soft_wrap=True)
