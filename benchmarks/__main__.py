"""Every benchmark, each in a process of its own, and a table of all measures: must, goal, which is met.

    OMP_NUM_THREADS=1 python -m benchmarks [NAME ...] [--markdown docs/results/benchmarks_cpu_2026-11-21.md]

Without names all are run. A benchmark prints one line a measure, as `side_by_side.line` writes it; that line
is all the table knows. Ends with 1 when a benchmark was refused or failed, or a must was not met.
"""

import argparse
import datetime
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.side_by_side import describe_machine

FOLDER = Path(__file__).parent
OTHERS = {"__init__", "__main__", "plain_wiring", "side_by_side"}
BOUND = r"(?:<=|>=) [\d.]+"
MEASURE = re.compile(
    r"(?P<name>.+): (?P<value>[\d.e+-]+) "
    rf"\((?:must (?P<must>{BOUND}), )?goal (?P<goal>{BOUND})\) *(?P<detail>.*)"
)


@dataclass(frozen=True)
class Row:
    """One measure."""

    name: str
    value: str
    must: str
    goal: str
    detail: str

    @property
    def verdict(self) -> str:
        """The better of the two bounds that holds."""
        if _holds(self.value, self.goal):
            return "goal"
        if not self.must:
            return "not met"
        return "must" if _holds(self.value, self.must) else "NOT MET"


def _holds(value: str, bound: str) -> bool:
    sign, limit = bound.split()
    return float(value) <= float(limit) if sign == "<=" else float(value) >= float(limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    names = arguments.names or sorted({path.stem for path in FOLDER.glob("*.py")} - OTHERS)
    rows, failed = [], []
    for name in names:
        output, ended_well = run(name)
        rows += measures(output)
        if not ended_well:
            failed.append(name)
    page = markdown(rows, failed)
    print(f"\n{page}")
    if arguments.markdown:
        arguments.markdown.write_text(page, encoding="utf-8")
    sys.exit(bool(failed) or any(row.verdict == "NOT MET" for row in rows))


def run(name: str) -> tuple[str, bool]:
    """What a benchmark printed, shown as it came, and whether it ended without a fault."""
    command, lines = [sys.executable, "-m", f"benchmarks.{name}"], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines), process.returncode == 0


def measures(output: str) -> list[Row]:
    """The measures among the lines of a benchmark."""
    found = (MEASURE.match(line) for line in output.splitlines())
    return [Row(**match.groupdict(default="")) for match in found if match]


def markdown(rows: list[Row], failed: list[str]) -> str:
    """The page of a run: machine, command and table."""
    lines = [
        f"# Benchmarks, {datetime.date.today()}",
        "",
        f"`OMP_NUM_THREADS=1 python -m {' '.join(['benchmarks', *sys.argv[1:]])}` on {describe_machine()}.",
        "Medians of paired ratios taken in turns; a side that disagrees with its reference is refused.",
        "",
        "| measure | value | must | goal | met | of what it is made |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.value} | {row.must} | {row.goal} | {row.verdict} | {row.detail} |"
            for row in rows
        ),
        *(f"\n{name} was refused or failed: it gave no figure." for name in failed),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
