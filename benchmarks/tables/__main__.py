"""Record learning curves, and compare searches on them in simulated time.

    python -m benchmarks.tables record benchmarks/tables/ptb.toml [--processes 2]
    python -m benchmarks.tables compare [--seeds 30 --processes 2]
    python -m benchmarks.tables page FILE.md
    python -m benchmarks.tables priors benchmarks/tables/{books,ewt,ptb}.arrow

The corpora of the recorded tables are cut with the command line:

    memtune corpus import ptb-1450 --format ptb --max-size 1500 --train <(head -n 1450 ptb.train.txt) \\
        --valid <(head -n 150 ptb.valid.txt) --test <(head -n 150 ptb.test.txt)
    cut_conllu() { awk -v RS= -v ORS='\\n\\n' "$2" "$1"; }
    memtune corpus import ewt-2500 --format conllu --max-size 1500 --lower-case \\
        --train <(cut_conllu en_ewt-ud-train.conllu 'NR<=2500') \\
        --valid <(cut_conllu en_ewt-ud-dev.conllu 'NR<=200') \\
        --test <(cut_conllu en_ewt-ud-dev.conllu 'NR>200 && NR<=400')
    memtune corpus import two-books --format gutenberg --train books/ --split 94,3,3 --max-size 1500 \\
        --lower-case          # books/ has 1ADAM10.TXT and 1ARGN10.TXT
    words() { sed -E 's/\\([0-4] //g; s/\\)//g' $1; }    # of trees of the Stanford Sentiment Treebank
    memtune corpus import reviews-2200 --max-size 1500 --lower-case \\
        --train <(words train.txt | head -n 2200) --valid <(words dev.txt | head -n 200) \\
        --test <(words dev.txt | sed -n 201,400p)
    text() { sed 's/ <eos>$//' subj_agr_filtered.dev.text | sed -n "$1p"; }  # Linzen et al. (2016)
    memtune corpus import wikipedia-1450 --max-size 1500 --train <(text 1,1450) \\
        --valid <(text 1451,1600) --test <(text 1601,1750)
    memtune corpus import ptb-4000 --format ptb --max-size 3000 --train <(sed -n 5001,9000p ptb.train.txt) \\
        --valid <(sed -n 201,500p ptb.valid.txt) --test <(sed -n 201,500p ptb.test.txt)

The last one is that of other_sizes/wide.toml, recorded with --configurations 120 --second-seeds 20.
"""

import argparse
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.tables.curve_table import FOLDER, read_table

RUNS = FOLDER / "runs"
MAX_TRAININGS = 100
"""Budget of a search in full trainings: in fewer, most searches do not come near the best configuration."""


def main() -> None:
    options = _parse_options()
    options.run(options)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="train configurations of a study and store their curves")
    record.add_argument("study", type=Path, help="a study file; its corpus is in the corpus store")
    record.add_argument("--out", type=Path, help="default: the study file with the suffix .arrow")
    record.add_argument("--configurations", type=int, default=200)
    record.add_argument("--second-seeds", type=int, default=30)
    record.add_argument("--processes", type=int, default=1)
    record.set_defaults(run=_record)
    compare = commands.add_parser("compare", help="run searches on recorded tables in simulated time")
    compare.add_argument(
        "tables", type=_parse_table_path, nargs="*", metavar="TABLE.arrow", help="default: all in this folder"
    )
    compare.add_argument("--seeds", type=int, default=30)
    compare.add_argument("--methods", nargs="*", metavar="NAME", help="default: all")
    compare.add_argument(
        "--trainings", type=int, default=MAX_TRAININGS, help="full trainings that a search may spend"
    )
    compare.add_argument("--processes", type=int, default=2)
    compare.add_argument("--runs", type=Path, default=RUNS, help="folder of ended runs")
    compare.set_defaults(run=_compare)
    page = commands.add_parser("page", help="write the tables and the figure of all ended runs")
    page.add_argument("page", type=Path, help="Markdown file; the figure has its name and .png")
    page.add_argument("--trainings", type=int, default=MAX_TRAININGS, help="as of `compare`")
    page.add_argument("--baseline", default="Ray Tune, factor 3", help="the method that ratios are to")
    page.add_argument("--runs", type=Path, default=RUNS, help="folder of ended runs")
    page.set_defaults(run=_write_page)
    priors = commands.add_parser("priors", help="print the prior points of search_spaces/ that tables give")
    priors.add_argument("tables", type=_parse_table_path, nargs="+", metavar="TABLE.arrow")
    priors.set_defaults(run=_print_priors)
    return parser.parse_args()


def _parse_table_path(text: str) -> Path:
    """The path of a recorded table. Raises ArgumentTypeError for another file."""
    path = Path(text)
    try:
        read_table(path)
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(
            f"{path} is not a table of learning curves ({type(error).__name__}: {error}); "
            "`record STUDY.toml` writes one, with the suffix .arrow"
        ) from None
    return path


def _record(options: argparse.Namespace) -> None:
    # Imported here: a comparison needs no torch.
    from benchmarks.tables.curve_recorder import RecordingPlan, record_table

    record_table(
        RecordingPlan(options.study, options.configurations, options.second_seeds),
        options.out or options.study.with_suffix(".arrow"),
        options.processes,
        partial(print, flush=True),
    )


def _compare(options: argparse.Namespace) -> None:
    from benchmarks.tables.comparison import run_all
    from benchmarks.tables.methods import METHODS

    options.runs.mkdir(parents=True, exist_ok=True)
    for path in options.tables or sorted(FOLDER.glob("*.arrow")):
        run_all(
            path,
            options.methods or list(METHODS),
            options.seeds,
            options.trainings,
            options.runs / f"{path.stem}.jsonl",
            options.processes,
            partial(print, flush=True),
        )


def _write_page(options: argparse.Namespace) -> None:
    from benchmarks.tables.comparison_page import draw_comparison, format_comparison, read_compared

    compared = read_compared(sorted(FOLDER.rglob("*.arrow")), options.runs, options.trainings)
    options.page.write_text(format_comparison(compared, options.baseline), encoding="utf-8")
    draw_comparison(compared, options.page.with_suffix(".png"))


def _print_priors(options: argparse.Namespace) -> None:
    from benchmarks.tables.comparison import make_space, rank_curves
    from benchmarks.tables.space_priors import format_points, list_good_points

    tables = {path: read_table(path) for path in sorted(options.tables)}
    spaces = [make_space(table, path) for path, table in tables.items()]
    for family, points in sorted(list_good_points(spaces, rank_curves(tables.values())).items()):
        print(f"search_spaces/{family}.toml\n{format_points(points)}")


if __name__ == "__main__":
    main()
