"""`python -m tensorese`."""

from tensorese.cli import main

if __name__ == "__main__":
    main()
