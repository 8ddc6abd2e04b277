"""The command `gputabu`: its commands, how they fail, and the exit codes.

A command is imported when it is wanted, and what it computes with when its options and its file are known to be right:
help and errors must not wait for scikit-learn.
"""

from __future__ import annotations

import io
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gputabu import __version__
from gputabu.core.interrupts import Termination
from gputabu.core.validation import BackendUnavailable

#: The commands in the order of the help: the module of each in this room, and the first sentence of its help.
COMMANDS = {
    "fit": ("fit", "Cluster the rows of a file."),
    "predict": ("predict", "Label the rows of a file by a model that fit has written."),
    "certify": ("certify", "Prove how far J of a clustering can be above the best possible."),
    "select-k": ("select", "Choose the number of clusters in a file."),
    "bench": ("bench", "Measure iterations and whole fits on this machine, beside scikit-learn's."),
    "reproduce": ("reproduce.command", "Run the experiments of the paper again and print its tables beside ours."),
    "datasets": ("datasets", "List the data sets: their size, the best J known, where they are on this machine, on "
                 "which terms."),
    "doctor": ("doctor", "Say what is installed and which backend runs here, and test it on a small scale."),
    "accept": ("accept", "Try this GPU: compare it with NumPy bit for bit, measure it, and write a report."),
}  # fmt: skip


class Commands(TyperGroup):
    """The group of all commands, each imported when it is wanted."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        import_module(f"gputabu.cli.{COMMANDS[cmd_name][0]}")  # which adds it to `app`
        return typer.main.get_group(app).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, also in a pipe
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

#: Errors of the user, with a sentence that explains them. Any other exception is a failure of the work.
USER_ERRORS = (ValueError, TypeError, ImportError, BackendUnavailable)

#: A parameter and its value in a message, and options that are named otherwise.
PARAMETER = re.compile(r"(?<![\w-])(\w+)=(?=\S)")
ALIASES = {"n_init": "--restarts", "restarts": "--restarts", "random_state": "--seed", "criterion": "--criterion"}

Debug = Annotated[bool, typer.Option("--debug", help="Show where in the code an error comes from.")]


class Command(TyperCommand):
    """A command that prints errors as one sentence on stderr, and remembers its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings(), terminable() as termination:
            warnings.showwarning = lambda message, *_, **__: print_message(ctx, f"warning: {message}")
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                code = fail(ctx, "interrupted.", 143 if termination.received else 130)
            except typer.Exit as end:
                code = 143 if end.exit_code == 130 and termination.received else end.exit_code
            except BrokenPipeError:  # the reader of the pipe has closed it
                raise
            except USER_ERRORS as error:
                code = fail(ctx, with_options(ctx, sentence(error)), 2)
            except Exception as error:
                code = fail(ctx, sentence(error), 1)
        raise typer.Exit(code)


@contextmanager
def terminable() -> Iterator[Termination]:
    """In this context, SIGTERM, with which containers and batch systems end a program, acts like Ctrl-C."""
    termination = Termination()
    installable = threading.current_thread() is threading.main_thread()
    installable = installable and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if installable:
        signal.signal(signal.SIGTERM, termination)
    try:
        yield termination
    finally:
        if installable:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def command(ctx: Any) -> str:
    """The command line that was typed, to repeat it."""
    return shlex.join(["gputabu", ctx.command.name, *ctx.meta["arguments"]])


def fail(ctx: Any, text: str, code: int) -> int:
    """Print the error and return the exit code; with --debug, raise the error again."""
    if ctx.params.get("debug"):
        raise
    print_message(ctx, text)
    return code


def print_message(ctx: Any, text: str) -> None:
    typer.echo(f"gputabu {ctx.command.name}: {text}", err=True)


def sentence(error: BaseException) -> str:
    """The message of an error on one line."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}".rstrip(": ") + "."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}."
    text = " ".join(str(error).split())
    return text if isinstance(error, USER_ERRORS) else f"{type(error).__name__}: {text} (--debug shows where.)"


def with_options(ctx: Any, text: str) -> str:
    """A sentence about parameters as one about the options that they come from: max_iter=0 is --max-iter=0."""
    options = {one.name: max(one.opts, key=len) for one in ctx.command.params if one.opts[0].startswith("-")}
    options |= {parameter: option for parameter, option in ALIASES.items() if option in options.values()}
    return PARAMETER.sub(lambda found: f"{options.get(found[1], found[1])}=", text)


def show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gputabu {__version__}")
        raise typer.Exit


@app.callback()
def commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """K-Means clusterings found by tabu search, on GPU and CPU with the same bits.

    \b
    gputabu fit data.csv -k 10 --out found     cluster a file
    gputabu predict found new.csv              label other rows by it
    gputabu certify found data.csv             how far is J from the best possible?
    gputabu select-k data.csv --ks 2:12        how many clusters?

    Exit codes: 0 it worked; 1 the work failed; 2 an option or a file is not what it must be; 130 after Ctrl-C and
    143 after SIGTERM, with the best found so far.
    """


def main() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names of files need not be valid text
    app(prog_name="gputabu" if sys.argv[0].endswith("__main__.py") else None)
