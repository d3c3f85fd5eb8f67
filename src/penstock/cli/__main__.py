"""`python -m penstock.cli`: the command without an installed script."""

from penstock.cli import main

if __name__ == "__main__":
    main()
