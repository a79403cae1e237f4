"""Run every benchmark in its own process, and print a table of all measures with their bounds.

    OMP_NUM_THREADS=1 python -m benchmarks [NAME ...] [--markdown FILE]

Without names, all benchmarks run that need no GPU. A benchmark prints one line per measure, formatted by
`side_by_side.format_measure`, and the table is parsed from these lines. The exit code is 1 when a benchmark
fails, when a result differs from its reference, or when a value violates its bound "must".
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
NOT_BENCHMARKS = {"__init__", "__main__", "baseline_search", "sequential_tests", "side_by_side"}
NEED_A_GPU = {"cuda_speed", "shared_gpu"}
BOUND_PATTERN = r"(?:<=|>=) [\d.]+"
MEASURE_PATTERN = re.compile(
    r"(?P<name>.+): (?P<value>[\d.e+-]+) "
    rf"\((?:must (?P<must>{BOUND_PATTERN}), )?goal (?P<goal>{BOUND_PATTERN})\) *(?P<detail>.*)"
)


@dataclass(frozen=True)
class Row:
    """One measure and its bounds."""

    name: str
    value: str
    must: str
    goal: str
    detail: str

    @property
    def verdict(self) -> str:
        """The better bound that the value meets."""
        if _is_met(self.value, self.goal):
            return "goal"
        if not self.must:
            return "not met"
        return "must" if _is_met(self.value, self.must) else "NOT MET"


def _is_met(value: str, bound: str) -> bool:
    sign, limit = bound.split()
    return float(value) <= float(limit) if sign == "<=" else float(value) >= float(limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    everywhere = {path.stem for path in FOLDER.glob("*.py")} - NOT_BENCHMARKS - NEED_A_GPU
    names = arguments.names or sorted(everywhere)
    rows, failed = [], []
    for name in names:
        output, has_succeeded = run_benchmark(name)
        rows += parse_measures(output)
        if not has_succeeded:
            failed.append(name)
    page = format_page(rows, failed)
    print(f"\n{page}")
    if arguments.markdown:
        arguments.markdown.write_text(page, encoding="utf-8")
    sys.exit(bool(failed) or any(row.verdict == "NOT MET" for row in rows))


def run_benchmark(name: str) -> tuple[str, bool]:
    """Run a benchmark and print its output; returns the output, and whether the exit code is 0."""
    command, lines = [sys.executable, "-m", f"benchmarks.{name}"], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines), process.returncode == 0


def parse_measures(output: str) -> list[Row]:
    """The measures in the output of a benchmark."""
    matches = (MEASURE_PATTERN.match(line) for line in output.splitlines())
    return [Row(**match.groupdict(default="")) for match in matches if match]


def format_page(rows: list[Row], failed: list[str]) -> str:
    """The page of a run: machine, command and table."""
    lines = [
        f"# Benchmarks, {datetime.date.today()}",
        "",
        f"`OMP_NUM_THREADS=1 python -m {' '.join(['benchmarks', *sys.argv[1:]])}` on {describe_machine()}.",
        "Medians of paired ratios, measured in alternation; no time is reported for a wrong result.",
        "",
        "| measure | value | must | goal | met | detail |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.value} | {row.must} | {row.goal} | {row.verdict} | {row.detail} |"
            for row in rows
        ),
        *(f"\n{name} failed or disagreed with its reference; it has no figure." for name in failed),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
