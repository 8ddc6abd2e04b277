"""The command `gputabu` itself: its options, how commands fail, and what their exit codes mean."""

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
    rich_markup_mode=None,  # plain text, in a pipe as on a screen
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

#: What is wrong with what was asked, in a sentence; anything else that is raised is a failure of the work.
WRONG = (ValueError, TypeError, ImportError, BackendUnavailable)

Debug = Annotated[bool, typer.Option("--debug", help="Show where in the code an error comes from.")]


class Command(TyperCommand):
    """A command whose errors are one sentence on stderr, and which remembers how it was called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings(), terminable() as termination:
            warnings.showwarning = lambda message, *_, **__: tell(ctx, f"warning: {message}")
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                code = fail(ctx, "interrupted.", 143 if termination.received else 130)
            except typer.Exit as end:
                code = 143 if end.exit_code == 130 and termination.received else end.exit_code
            except BrokenPipeError:  # whoever reads has had enough
                raise
            except WRONG as error:
                code = fail(ctx, sentence(error), 2)
            except Exception as error:
                code = fail(ctx, sentence(error), 1)
        raise typer.Exit(code)


@contextmanager
def terminable() -> Iterator[Termination]:
    """While this is open, SIGTERM, by which containers and batch systems end a program, is as Ctrl-C."""
    termination = Termination()
    mine = threading.current_thread() is threading.main_thread()
    mine = mine and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, termination)
    try:
        yield termination
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def command(ctx: Any) -> str:
    """What was typed, for the same again."""
    return shlex.join(["gputabu", ctx.command.name, *ctx.meta["arguments"]])


def fail(ctx: Any, text: str, code: int) -> int:
    """Say what went wrong; with --debug, the error goes on and Python says where."""
    if ctx.params.get("debug"):
        raise
    tell(ctx, text)
    return code


def tell(ctx: Any, text: str) -> None:
    typer.echo(f"gputabu {ctx.command.name}: {text}", err=True)


def sentence(error: BaseException) -> str:
    """The message of an error on one line."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}".rstrip(": ") + "."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}."
    text = " ".join(str(error).split())
    return text if isinstance(error, WRONG) else f"{type(error).__name__}: {text} (--debug shows where.)"


def show_version(asked: bool) -> None:
    if asked:
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
    gputabu select-k data.csv --ks 2:12        how many clusters?

    Exit codes: 0 it worked; 1 the work failed; 2 an option or a file is not what it must be; 130 after Ctrl-C and
    143 after SIGTERM, with the best found so far.
    """


def main() -> None:
    """Entry point of the command `gputabu`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names of files need not be text
    app(prog_name="gputabu" if sys.argv[0].endswith("__main__.py") else None)
