"""The command `gputabu`: its options, how commands fail, and the exit codes."""

from __future__ import annotations

import io
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import gputabu
from gputabu import BackendUnavailable
from gputabu.core.interrupts import Termination

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text, also in a pipe
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

#: Errors of the user, with a sentence that explains them. Any other exception is a failure of the work.
USER_ERRORS = (ValueError, TypeError, ImportError, BackendUnavailable)

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
                code = fail(ctx, sentence(error), 2)
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


def show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gputabu {gputabu.__version__}")
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
    """Entry point of the command `gputabu`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names of files need not be valid text
    app(prog_name="gputabu" if sys.argv[0].endswith("__main__.py") else None)
