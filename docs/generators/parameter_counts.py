"""The tables of docs/parameter_counts.md: the printed sizes of published models next to ours."""

from dataclasses import dataclass
from typing import Any

import torch

from memtune.experiments.published_tables import is_rounded_or_cut_off
from memtune.experiments.single_trial import load_trial
from memtune.library import FileKind
from memtune.models import NeuralLanguageModelConfig

TRIALS_FOLDER = FileKind.TRIAL.folder
PENN_TREEBANK, WIKITEXT_2 = 10_000, 33_278
"""Vocabulary sizes of the two corpora, in words."""


@dataclass(frozen=True)
class PublishedCount:
    """A parameter count as a paper prints it, and the trial file of the model."""

    trial: str
    source: str
    printed_count: str
    """In millions, with the paper's digits."""
    vocabulary: int = PENN_TREEBANK
    is_derivable: bool = True
    """Whether the equations give the printed count."""

    def load_config(self) -> NeuralLanguageModelConfig:
        """The model's configuration."""
        model = load_trial(TRIALS_FOLDER / f"{self.trial}.toml").trial.model
        return model.require_network(f"the parameter count of {self.trial}")

    def count_parameters(self) -> int:
        """Number of parameters of our model."""
        return self.load_config().parameter_count(self.vocabulary)

    def is_as_printed(self) -> bool:
        """Whether our count, rounded or cut off to the printed digits, is the printed one."""
        decimals = len(self.printed_count.partition(".")[2])
        unit = 10 ** (6 - decimals)
        return is_rounded_or_cut_off(self.count_parameters(), round(float(self.printed_count) * 1e6), unit)


ZAREMBA = "Zaremba et al. 2014, as printed by Merity et al. 2017"
BENES = "Beneš et al. 2017, table 1"
YOGATAMA = "Yogatama et al. 2018, table 1"
PUBLISHED_COUNTS = (
    PublishedCount("zaremba2014_ptb_medium", ZAREMBA, "20"),
    PublishedCount("zaremba2014_ptb_large", ZAREMBA, "66"),
    PublishedCount("benes2017_ptb_lstm_small", BENES, "2.0"),
    PublishedCount("benes2017_ptb_lstm_medium", BENES, "5"),
    PublishedCount("benes2017_ptb_lstm_big", BENES, "20"),
    PublishedCount("benes2017_ptb_scrn", BENES, "2.8"),
    PublishedCount("benes2017_ptb_residual_memory_small", BENES, "2.3"),
    PublishedCount("benes2017_ptb_residual_memory_medium", BENES, "7.1"),
    PublishedCount("merity2017_ptb_awd_lstm", YOGATAMA, "24"),
    PublishedCount("yogatama2018_ptb_lstm_650", YOGATAMA, "10"),
    PublishedCount("yogatama2018_ptb_lstm_650", YOGATAMA, "25", WIKITEXT_2),
    PublishedCount("yogatama2018_ptb_lstm_920", YOGATAMA, "16"),
    PublishedCount("yogatama2018_ptb_lstm_920", YOGATAMA, "40", WIKITEXT_2, is_derivable=False),
    PublishedCount("yogatama2018_ptb_attention_15", YOGATAMA, "12"),
    PublishedCount("yogatama2018_ptb_attention_15", YOGATAMA, "28", WIKITEXT_2, is_derivable=False),
    *(
        PublishedCount(f"yogatama2018_ptb_stack_{variant}", YOGATAMA, printed, words)
        for variant in ("discrete", "continuous", "multipop")
        for printed, words in (("11", PENN_TREEBANK), ("26", WIKITEXT_2))
    ),
)


@dataclass(frozen=True)
class PublishedPairCount:
    """A count of two sentences' readers without embeddings, as Cheng et al. 2016, table 3, print it."""

    trial: str
    formula: str
    """The entries of all matrices, with the classifier; d is the width, E the width of the embeddings."""
    printed_count: str
    is_derivable: bool = True
    """Whether the equations give the printed count."""

    def count_parameters(self, shared_reader: bool = True) -> int:
        """Number of parameters of our model, with one reader for both sentences or with two."""
        trial = load_trial(TRIALS_FOLDER / f"{self.trial}.toml").trial
        task = trial.task.model_copy(update={"shared_reader": shared_reader})
        return task.parameter_count(trial.model, 0)

    def is_as_printed(self) -> bool:
        """Whether our count, rounded or cut off to the printed digits, is the printed one."""
        thousands = self.printed_count.endswith("k")
        printed = round(float(self.printed_count[:-1]) * (1e3 if thousands else 1e6))
        # Every count in thousands ends in 0: the paper prints two digits throughout.
        return is_rounded_or_cut_off(self.count_parameters(), printed, 10_000 if thousands else 100_000)


PUBLISHED_PAIR_COUNTS = (
    PublishedPairCount("cheng2016_snli_apart_100", "9 d² + 5 d E", "260k", is_derivable=False),
    PublishedPairCount("cheng2016_snli_shallow_100", "10 d² + 6 d E", "280k"),
    PublishedPairCount("cheng2016_snli_deep_100", "12 d² + 7 d E", "330k"),
    PublishedPairCount("cheng2016_snli_shallow_300", "10 d² + 6 d E", "1.4M"),
    PublishedPairCount("cheng2016_snli_deep_300", "12 d² + 7 d E", "1.7M"),
    PublishedPairCount("cheng2016_snli_shallow_450", "10 d² + 6 d E", "2.8M"),
    PublishedPairCount("cheng2016_snli_deep_450", "12 d² + 7 d E", "3.4M"),
)

COUNTS_HEADER = """| trial | words | printed | ours | as printed | printed where |
|---|---|---|---|---|---|"""
DISCREPANCIES_HEADER = """
## Where the equations do not give the printed count

The tables list every parameter of the two models, and the count under other interpretations of the paper. One
LSTM layer of H units has 4 H rows in each of two matrices and two biases; the embeddings are the rows of the
output layer. No interpretation comes within half a million of the printed number, so our models follow the
equations.
"""
SMALL_LSTM_HEADER = """
## Truncated rather than rounded

The two tables of the small LSTM alone have the printed 2.0M parameters; its layer and biases add the rest:
"""
PAIRS_HEADER = """
## Two sentences

The counts are those of the readers of premise and hypothesis of Cheng et al. 2016, table 3, without their
embeddings of width E = 300. The matrices of an LSTM-network have 6 d² + 5 d E entries, the classifier
3 d²: a ReLU layer over both means and a layer above it. The attention to the premise adds d² + d E. Deep
fusion adds another d² for the previous attended vector, which shallow fusion does not read, and d² + d E for
its gate. All six fusions have the printed size if one network reads both sentences, and none has it with two
networks. Without fusion the count is 241k with one reader and 452k with two; no interpretation of the paper
that we know gives the printed 260k.

| trial | matrices | printed | one reader | two readers | one as printed |
|---|---|---|---|---|---|"""


def count_under_alternatives(published: PublishedCount) -> dict[str, int]:
    """Counts under other interpretations of the paper, by their description."""
    changes: dict[str, dict[str, Any]] = {
        "two layers": {"layers": 2},
        "an untied output layer": {"tie_output": False},
    }
    if "score" in type(published.load_config()).model_fields:
        changes |= {f"{score} score": {"score": score} for score in ("bilinear", "printed")}
    return {
        name: published.load_config().model_copy(update=change).parameter_count(published.vocabulary)
        for name, change in changes.items()
    }


def render_tables() -> str:
    """Every count, and the parameters of the models that are not as printed, as Markdown."""
    rows = [_count_row(published) for published in PUBLISHED_COUNTS]
    sections = [
        _format_discrepancies(published) for published in PUBLISHED_COUNTS if not published.is_derivable
    ]
    small = next(published for published in PUBLISHED_COUNTS if published.trial.endswith("lstm_small"))
    pairs = [_pair_row(published) for published in PUBLISHED_PAIR_COUNTS]
    return "\n".join(
        [
            COUNTS_HEADER,
            *rows,
            SMALL_LSTM_HEADER,
            _format_parameter_table(small),
            DISCREPANCIES_HEADER,
            *sections,
            PAIRS_HEADER,
            *pairs,
            "",
        ]
    )


def _pair_row(published: PublishedPairCount) -> str:
    met = "yes" if published.is_as_printed() else "no"
    sizes = (
        f"{published.printed_count} | {published.count_parameters():,} | "
        f"{published.count_parameters(shared_reader=False):,}"
    )
    return f"| `{published.trial}` | {published.formula} | {sizes} | {met} |"


def _count_row(published: PublishedCount) -> str:
    met = "yes" if published.is_as_printed() else "no, see below"
    trial = f"`{published.trial}`"
    ours = f"{published.count_parameters():,}"
    return (
        f"| {trial} | {published.vocabulary:,} | {published.printed_count}M | {ours} | {met} | "
        f"{published.source} |"
    )


def _format_discrepancies(published: PublishedCount) -> str:
    title = f"### `{published.trial}`: {published.printed_count}M printed\n"
    rows = [f"| {name} | {count:,} |" for name, count in count_under_alternatives(published).items()]
    table = ["", "| other interpretation | parameters |", "|---|---|", *rows, ""]
    return "\n".join([title, _format_parameter_table(published), *table])


def _format_parameter_table(published: PublishedCount) -> str:
    """Name, shape and size of every parameter; the meta device allocates no memory."""
    with torch.device("meta"):
        model = published.load_config().build(published.vocabulary)
    rows = [
        f"| `{name}` | {' x '.join(f'{size:,}' for size in value.shape)} | {value.numel():,} |"
        for name, value in model.named_parameters()
    ]
    return "\n".join(
        [
            "| parameter | shape | size |",
            "|---|---|---|",
            *rows,
            f"| sum | | {published.count_parameters():,} |",
        ]
    )
