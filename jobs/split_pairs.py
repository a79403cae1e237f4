"""Split a file of pairs, `premise TAB hypothesis TAB label` a line, 80/10/10 into train, valid and test.

All pairs of one premise go to one split: a premise of the test is new.

python jobs/split_pairs.py pairs.tsv FOLDER [SEED]
"""

import random
import sys
from pathlib import Path


def main(file: str, folder: str, seed: str = "0") -> None:
    """Write train.tsv, valid.tsv and test.tsv to the folder."""
    lines = Path(file).read_text(encoding="utf-8").splitlines(keepends=True)
    premises = sorted({line.split("\t")[0] for line in lines})
    random.Random(int(seed)).shuffle(premises)
    names = {premise: _split(index / len(premises)) for index, premise in enumerate(premises)}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        chosen = [line for line in lines if names[line.split("\t")[0]] == name]
        (Path(folder) / f"{name}.tsv").write_text("".join(chosen), encoding="utf-8")
        print(f"{name}: {len(chosen):,} pairs")


def _split(share: float) -> str:
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


if __name__ == "__main__":
    main(*sys.argv[1:])
