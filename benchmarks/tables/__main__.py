"""Record learning curves, and replay searches on them in simulated time.

python -m benchmarks.tables record benchmarks/tables/ptb.toml [--processes 2]
"""

import argparse
from functools import partial
from pathlib import Path

from benchmarks.tables.recording import Recording, record_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="train configurations of a study and store their curves")
    record.add_argument("study", type=Path, help="a study file; its corpus is in the corpus store")
    record.add_argument("--out", type=Path, help="default: the study file with the suffix .arrow")
    record.add_argument("--configurations", type=int, default=210)
    record.add_argument("--second-seeds", type=int, default=30)
    record.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    record_table(
        Recording(options.study, options.configurations, options.second_seeds),
        options.out or options.study.with_suffix(".arrow"),
        options.processes,
        partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
