"""`python -m stages` is the same as `wm`: a signal during the imports, of which there are many, ends it in silence."""

import sys


def main() -> None:
    """Entry point of `wm`."""
    try:
        from stages import cli
    except KeyboardInterrupt:
        # 130 is what a shell says of a command that SIGINT ended.
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
