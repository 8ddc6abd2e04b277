"""The command line: a module for each command, and `app`, which has them all."""

from gputabu.cli.app import app, main

__all__ = ["app", "main"]
