"""`python -m gputabu`."""

from gputabu.cli import main

main()
