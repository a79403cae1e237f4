"""Split a file of pairs, `premise TAB hypothesis TAB label` a line, 80/10/10 into train, valid and test.

All pairs of one premise go to one split: a premise of the test is new.

python jobs/split_pairs.py pairs.tsv FOLDER [SEED]
"""

import random
from pathlib import Path
from typing import Annotated

import typer

from memtune.cli import run_script


def main(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    folder: Path,
    seed: Annotated[int, typer.Argument()] = 0,
) -> None:
    """Write train.tsv, valid.tsv and test.tsv to the folder."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    premises = sorted({line.split("\t")[0] for line in lines})
    random.Random(seed).shuffle(premises)
    names = {premise: _split(index / len(premises)) for index, premise in enumerate(premises)}
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        chosen = [line for line in lines if names[line.split("\t")[0]] == name]
        (folder / f"{name}.tsv").write_text("".join(chosen), encoding="utf-8")
        print(f"{name}: {len(chosen):,} pairs")


def _split(share: float) -> str:
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


if __name__ == "__main__":
    run_script(main)
