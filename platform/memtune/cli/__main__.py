"""`python -m memtune.cli ...` is `memtune ...`."""

from memtune.cli import main

if __name__ == "__main__":
    main()
