"""Our parameter counts beside the published ones, as a page. Written from the code; a test compares.

python -m memtune.reports.parameter_counts > docs/parameter_counts.md
"""

from dataclasses import dataclass
from typing import Any

import torch

from memtune.execution.single import load_trial
from memtune.execution.study import HOME
from memtune.models import Architecture

__all__ = ["PAIRS", "PUBLISHED", "TRIALS", "Published", "PublishedPair", "parameter_counts_page", "readings"]

TRIALS = HOME / "jobs" / "trials"
PENN_TREEBANK, WIKITEXT_2 = 10_000, 33_278
"""Words of the two vocabularies."""


@dataclass(frozen=True)
class Published:
    """A count as a paper prints it, and the trial that has the model."""

    trial: str
    source: str
    printed: str
    """In millions, with the paper's digits."""
    vocabulary: int = PENN_TREEBANK
    given: bool = True
    """Whether the equations give the printed count."""

    def config(self) -> Architecture:
        """The model's configuration."""
        model = load_trial(TRIALS / f"{self.trial}.toml").trial.model
        assert isinstance(model, Architecture), f"{self.trial} is no network"
        return model

    def count(self) -> int:
        """Our parameters."""
        return self.config().parameter_count(self.vocabulary)

    def agrees(self) -> bool:
        """Whether ours, rounded or cut off after the printed digits, is the printed count."""
        digits = len(self.printed.partition(".")[2])
        return abs(self.count() / 1e6 - float(self.printed)) < 10.0**-digits


ZAREMBA = "Zaremba et al. 2014, as printed by Merity et al. 2017"
BENES = "Beneš et al. 2017, table 1"
YOGATAMA = "Yogatama et al. 2018, table 1"
PUBLISHED = (
    Published("zaremba2014_ptb_medium", ZAREMBA, "20"),
    Published("zaremba2014_ptb_large", ZAREMBA, "66"),
    Published("benes2017_ptb_lstm_small", BENES, "2.0"),
    Published("benes2017_ptb_lstm_medium", BENES, "5"),
    Published("benes2017_ptb_lstm_big", BENES, "20"),
    Published("benes2017_ptb_scrn", BENES, "2.8"),
    Published("benes2017_ptb_residual_memory_small", BENES, "2.3"),
    Published("benes2017_ptb_residual_memory_medium", BENES, "7.1"),
    Published("merity2017_ptb_awd_lstm", YOGATAMA, "24"),
    Published("yogatama2018_ptb_lstm_650", YOGATAMA, "10"),
    Published("yogatama2018_ptb_lstm_650", YOGATAMA, "25", WIKITEXT_2),
    Published("yogatama2018_ptb_lstm_920", YOGATAMA, "16"),
    Published("yogatama2018_ptb_lstm_920", YOGATAMA, "40", WIKITEXT_2, given=False),
    Published("yogatama2018_ptb_attention_15", YOGATAMA, "12"),
    Published("yogatama2018_ptb_attention_15", YOGATAMA, "28", WIKITEXT_2, given=False),
    *(
        Published(f"yogatama2018_ptb_stack_{variant}", YOGATAMA, printed, words)
        for variant in ("discrete", "continuous", "multipop")
        for printed, words in (("11", PENN_TREEBANK), ("26", WIKITEXT_2))
    ),
)


@dataclass(frozen=True)
class PublishedPair:
    """A count of two sentences' readers without embeddings, as Cheng et al. 2016, table 3, print it."""

    trial: str
    matrices: str
    """What the equations and the classifier hold; d is the width, E that of the embeddings."""
    printed: str
    given: bool = True
    """Whether the equations give the printed count."""

    def count(self, shared_reader: bool = True) -> int:
        """Our parameters, with one reader for both sentences or with two."""
        trial = load_trial(TRIALS / f"{self.trial}.toml").trial
        task = trial.task.model_copy(update={"shared_reader": shared_reader})
        return task.parameter_count(trial.model, 0)

    def agrees(self) -> bool:
        """Whether ours, rounded or cut off after the printed digits, is the printed count."""
        unit = 1e3 if self.printed.endswith("k") else 1e6
        step = 10 if self.printed.endswith("k") else 0.1
        return abs(self.count() / unit - float(self.printed[:-1])) < step


PAIRS = (
    PublishedPair("cheng2016_snli_apart_100", "9 d² + 5 d E", "260k", given=False),
    PublishedPair("cheng2016_snli_shallow_100", "10 d² + 6 d E", "280k"),
    PublishedPair("cheng2016_snli_deep_100", "12 d² + 7 d E", "330k"),
    PublishedPair("cheng2016_snli_shallow_300", "10 d² + 6 d E", "1.4M"),
    PublishedPair("cheng2016_snli_deep_300", "12 d² + 7 d E", "1.7M"),
    PublishedPair("cheng2016_snli_shallow_450", "10 d² + 6 d E", "2.8M"),
    PublishedPair("cheng2016_snli_deep_450", "12 d² + 7 d E", "3.4M"),
)

HEAD = """# Parameter counts

The published models as trial files in `jobs/trials/`, and their parameters by formula beside those in print:
"as printed" is equal when rounded or cut off after the printed digits. Of the medium LSTM of Beneš et al. the
size alone is known, and its width is the one that gives it. Written by
`python -m memtune.reports.parameter_counts`.

| trial | words | printed | ours | as printed | printed where |
|---|---|---|---|---|---|"""
ARITHMETIC = """
## Where the equations do not give the printed count

Every parameter of the two models, and what other readings of the paper would make of the sum. One LSTM
layer of H units has 4 H rows in each of two matrices and two biases; the words' vectors are the rows of the
output layer. No reading comes within half a million of what is printed: the models are as the equations are.
"""
SMALL_LSTM = """
## Cut off rather than rounded

The small LSTM's two tables alone are the printed 2.0M; its layer and biases add the rest:
"""
PAIRS_HEAD = """
## Two sentences

The readers of premise and hypothesis of Cheng et al. 2016, table 3, without their embeddings, which are
E = 300 wide. An LSTM-network has 6 d² + 5 d E in its matrices, the classifier 3 d²: a layer of ReLU from
both means and one above it. The attention to the premise adds d² + d E, and d² with the term of what it
found before, which deep fusion has and shallow fusion has not; the gate of deep fusion adds d² + d E.
All six fusions then have the printed size when one network reads both sentences, and none has it with
two. The two networks read apart come to 241k with one reader and to 452k with two: no reading of the
paper found here gives the printed 260k.

| trial | matrices | printed | one reader | two readers | one as printed |
|---|---|---|---|---|---|"""


def readings(published: Published) -> dict[str, int]:
    """Counts under what the paper might have meant, by what that is."""
    changes: dict[str, dict[str, Any]] = {
        "two layers": {"layers": 2},
        "an output layer of its own": {"tie_output": False},
    }
    if "score" in type(published.config()).model_fields:
        changes |= {f"{score} score": {"score": score} for score in ("bilinear", "printed")}
    return {
        name: published.config().model_copy(update=change).parameter_count(published.vocabulary)
        for name, change in changes.items()
    }


def parameter_counts_page() -> str:
    """The page in Markdown: every count, and the arithmetic of those that are not as printed."""
    rows = [_row(published) for published in PUBLISHED]
    sections = [_arithmetic(published) for published in PUBLISHED if not published.given]
    small = next(published for published in PUBLISHED if published.trial.endswith("lstm_small"))
    pairs = [_pair_row(published) for published in PAIRS]
    return "\n".join(
        [HEAD, *rows, SMALL_LSTM, _parameters(small), ARITHMETIC, *sections, PAIRS_HEAD, *pairs, ""]
    )


def _pair_row(published: PublishedPair) -> str:
    met = "yes" if published.agrees() else "no"
    sizes = f"{published.printed} | {published.count():,} | {published.count(shared_reader=False):,}"
    return f"| `{published.trial}` | {published.matrices} | {sizes} | {met} |"


def _row(published: Published) -> str:
    met = "yes" if published.agrees() else "no, see below"
    trial = f"`{published.trial}`"
    ours = f"{published.count():,}"
    return (
        f"| {trial} | {published.vocabulary:,} | {published.printed}M | {ours} | {met} | {published.source} |"
    )


def _arithmetic(published: Published) -> str:
    title = f"### `{published.trial}`: {published.printed}M printed\n"
    rows = [f"| {name} | {count:,} |" for name, count in readings(published).items()]
    table = ["", "| other reading | parameters |", "|---|---|", *rows, ""]
    return "\n".join([title, _parameters(published), *table])


def _parameters(published: Published) -> str:
    """Name, shape and size of every parameter; the module is built without memory."""
    with torch.device("meta"):
        model = published.config().build(published.vocabulary)
    rows = [
        f"| `{name}` | {' x '.join(f'{size:,}' for size in value.shape)} | {value.numel():,} |"
        for name, value in model.named_parameters()
    ]
    return "\n".join(
        ["| parameter | shape | size |", "|---|---|---|", *rows, f"| sum | | {published.count():,} |"]
    )


if __name__ == "__main__":
    print(parameter_counts_page(), end="")
