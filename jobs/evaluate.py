"""A registered model evaluated on a cluster.

`ray job submit ... -- python jobs/evaluate.py models:/ptb@champion --split test`
"""

import sys

from memtune.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "evaluate")
    main()
