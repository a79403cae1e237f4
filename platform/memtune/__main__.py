"""`python -m memtune ...` is `memtune ...`."""

from memtune.cli import main

if __name__ == "__main__":
    main()
