"""A corpus imported on a cluster, straight into its store.

`ray job submit ... -- python jobs/import_corpus.py NAME --train FILE --valid FILE --test FILE`, with the
options of `memtune corpus import`; the files are paths on the head, or of the job's package.
"""

import sys

from memtune.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["corpus", "import"]
    main()
