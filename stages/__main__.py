"""`python -m stages` is the same as `wm`."""

from stages.cli import main

if __name__ == "__main__":
    main()
