"""A study as a job on a cluster: `ray job submit ... -- python jobs/search.py jobs/studies/<study>.toml`."""

import sys

from memtune.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "search")
    main()
