"""`python -m gputabu`, and the command `gputabu`."""

import gc
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback from the first import on."""
    gc.set_threshold(100_000)  # imports make many objects and hardly any garbage: a tenth of a second is saved
    try:
        from gputabu.cli import main

        main()
    except KeyboardInterrupt:
        print("gputabu: interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
