"""The registry of probes, and the corpora of their rows.

A sentence of a probe's corpus is a row: its inputs, then as many answers, UNASKED where nothing is asked.
The rows of a corpus are drawn from its name, and no two of them have equal inputs, in whatever split. A
corpus has the name `probe-NAME`, or `probe-NAME-SETTING-VALUE...` for other settings, such as
`probe-mqar-pairs-16`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from memtune.corpora.importing.importer import ImportResult, import_corpus
from memtune.corpora.probes import probe_rows as rows
from memtune.corpora.probes.probe_rows import UNASKED, Row
from memtune.corpora.store.corpus import Corpus, open_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import ImportOptions
from memtune.errors import CorpusError, did_you_mean

Number = int | float
PREFIX = "probe-"
MAX_SETTING = 10_000_000
"""A row of more words, or more rows, would take minutes and gigabytes to draw."""
MAX_INPUTS = 100_000_000
"""Inputs of all training rows, for the same reason."""
EVALUATED_ROWS = 1_280
"""Rows of validation, and of each length of the test split, unless a corpus sets `evaluated`."""
TESTED_LENGTHS = (1, 2, 4)
"""Lengths of the test rows of a probe that tests longer ones, by the trained length."""
MAX_DRAWS_PER_ROW = 200
"""A row is drawn again where it equals an earlier one, and where a sentence of the grammar asks nothing."""


@dataclass(frozen=True)
class Probe:
    """A question with known answers: a solver made by hand answers every asked word.

    settings: what `draw` takes by name, and `rows` of the training split; they fit a CPU. published: the
    settings of the source, where they are others. references: mixers that are known to solve it. solved: the
    share of the way from chance to the ceiling from which a model counts as having solved it.
    """

    draw: Callable[..., Row | None]
    settings: Mapping[str, Number]
    published: Mapping[str, Number] = field(default_factory=dict)
    source: str = ""
    references: tuple[str, ...] = ("attention",)
    solved: float = 0.9
    tests_longer: bool = False
    """Whether the test split also has rows of twice and four times the trained length; they ask beyond it."""
    reads_last_state: bool = False
    """Whether all answers are read from the state after the last input."""

    @property
    def known_settings(self) -> dict[str, Number]:
        """What a corpus may set, with the values of one that does not."""
        return {**self.settings, "evaluated": EVALUATED_ROWS}

    def draw_rows(self, name: str, changes: Mapping[str, Number]) -> Iterator[tuple[str, Row]]:
        """All rows with their splits; `name` is their seed. Raises CorpusError for too few different rows."""
        settings = {**self.known_settings, **changes}
        trained_rows, evaluated = int(settings.pop("rows")), int(settings.pop("evaluated"))
        lengths = [settings["length"] * times for times in TESTED_LENGTHS] if self.tests_longer else [None]
        seen: set[str] = set()
        for split, count in (("train", trained_rows), ("valid", evaluated), ("test", evaluated)):
            for length in lengths if split == "test" else lengths[:1]:
                own = settings if length is None else settings | {"length": length}
                trained = 0 if length in (None, settings.get("length")) else int(settings["length"])
                draw = partial(self.draw, Random(f"{name} {split} {length}"), split == "train", **own)
                for inputs, answers in _draw_different(draw, count, seen, name):
                    yield split, (inputs, [UNASKED] * trained + answers[trained:])


def _draw_different(draw: Callable[[], Row | None], count: int, seen: set[str], name: str) -> Iterator[Row]:
    left = count * MAX_DRAWS_PER_ROW
    while count and left:
        left -= 1
        row = draw()
        if row is None or (key := " ".join(row[0])) in seen:
            continue
        seen.add(key)
        count -= 1
        yield row
    if count:
        raise CorpusError(
            f"{name} has too few different rows; give it longer rows, more words, or fewer `rows`"
        )


_mad_probe = partial(Probe, source="MAD, athms/mad-lab")
_state_probe = partial(Probe, references=("slstm", "lstm"), tests_longer=True)
_word_problem = partial(_state_probe, source="jopetty/word-problem")
_grammar_probe = partial(
    Probe, settings={"rows": 6_400}, source="memtune's grammar", references=("attention", "lstm")
)
PROBES: dict[str, Probe] = {
    "mqar": Probe(
        rows.draw_mqar,
        {"length": 64, "pairs": 8, "keys": 64, "values": 64, "rows": 20_000},
        {"pairs": 4, "keys": 4_096, "values": 4_096, "rows": 100_000},
        "zoology, figure 2",
    ),
    "in_context_recall": _mad_probe(
        rows.draw_context_recall, {"length": 64, "vocabulary": 16, "rows": 12_800}, {"length": 128}
    ),
    "noisy_recall": _mad_probe(
        rows.draw_context_recall,
        {"length": 64, "vocabulary": 32, "noise": 0.2, "noise_words": 16, "rows": 12_800},
        {"length": 128},
    ),
    "fuzzy_recall": _mad_probe(
        rows.draw_fuzzy_recall,
        {"length": 64, "vocabulary": 16, "longest": 3, "rows": 12_800},
        {"length": 128},
        references=("path", "attention"),
        solved=0.5,  # no mixer solves it: the best published mean is 0.65
    ),
    "selective_copying": _mad_probe(
        rows.draw_selective_copying,
        {"length": 64, "copied": 8, "vocabulary": 16, "rows": 12_800},
        {"length": 256, "copied": 16},
        references=("path", "attention"),
    ),
    "compression": _mad_probe(
        rows.draw_compression,
        {"length": 16, "vocabulary": 16, "rows": 12_800},
        {"length": 32},
        references=("mlstm",),
        solved=0.4,  # no mixer solves it: the best published mean is 0.49
        reads_last_state=True,
    ),
    "memorisation": _mad_probe(
        rows.draw_memorisation, {"length": 32, "vocabulary": 256, "rows": 256}, references=("mlstm",)
    ),
    "induction": Probe(
        rows.draw_induction,
        {"length": 32, "vocabulary": 16, "rows": 12_800},
        {"length": 256},
        "Mamba, table 2",
        tests_longer=True,
    ),
    "parity": _state_probe(
        partial(rows.draw_sums, modulus=2),
        {"length": 32, "rows": 4_096},
        {"length": 40},
        "Deletang et al. (2023)",
    ),
    "modular_arithmetic": _state_probe(
        partial(rows.draw_arithmetic, modulus=5),
        {"length": 32, "rows": 12_800},
        {"length": 40},
        "Deletang et al. (2023)",
    ),
    "s3": _state_probe(
        partial(rows.draw_products, objects=3),
        {"length": 32, "rows": 12_800},
        {"length": 128},
        "DeltaProduct",
    ),
    "s5": _word_problem(partial(rows.draw_products, objects=5), {"length": 16, "rows": 51_200}),
    "a5": _word_problem(partial(rows.draw_products, objects=5, even=1), {"length": 16, "rows": 51_200}),
    "z60": _word_problem(partial(rows.draw_sums, modulus=60), {"length": 16, "rows": 51_200}),
    "dyck": _state_probe(
        rows.draw_dyck,
        {"length": 32, "kinds": 2, "depth": 3, "rows": 12_800},
        {"length": 84},
        "Hewitt et al. (2020)",
    ),
    "agreement": _grammar_probe(rows.draw_agreement),
    "brackets": _grammar_probe(rows.draw_bracket),
    "names": _grammar_probe(rows.draw_name),
}
"""Name -> probe."""
SETS: dict[str, tuple[str, ...]] = {
    "mad": tuple(sorted(name for name, probe in PROBES.items() if probe.source.startswith("MAD"))),
    "recall": ("mqar", "induction", "in_context_recall", "selective_copying"),
    "state": ("parity", "modular_arithmetic", "s3", "s5", "a5", "z60", "dyck"),
    "language": ("agreement", "brackets", "names"),
    "all": tuple(PROBES),
}
"""Name -> the probes that are asked together."""


def select_probes(name: str) -> tuple[str, ...]:
    """The probes of a set, or the one of a name. Raises CorpusError that suggests the nearest name."""
    if name not in {**SETS, **PROBES}:
        raise CorpusError(f'no probe or set "{name}"; {did_you_mean(name, [*SETS, *PROBES])}')
    return SETS.get(name, (name,))


def check_settings(probe: str, changes: Mapping[str, Number]) -> dict[str, Number]:
    """The changed settings, of which whole ones are integers. Raises CorpusError where they allow no row."""
    known, checked = PROBES[probe].known_settings, dict(changes)
    for name, value in changes.items():
        if isinstance(known[name], float):
            if not 0 <= value <= 1:
                raise CorpusError(f"the probe {probe} has {name} = {value:g}; give a number from 0 to 1")
        elif not 1 <= value <= MAX_SETTING or not float(value).is_integer():
            raise CorpusError(
                f"the probe {probe} has {name} = {value:g}; give a whole number from 1 to {MAX_SETTING:,}"
            )
        else:
            checked[name] = int(value)
    own: dict[str, Number] = {**known, **checked}
    count, _ = own.pop("rows"), own.pop("evaluated")
    if (inputs := count * own.get("length", 1)) > MAX_INPUTS:
        raise CorpusError(
            f"the rows of {probe} would have {inputs:,} inputs, more than {MAX_INPUTS:,}; give fewer "
            "rows, or shorter ones"
        )
    try:
        PROBES[probe].draw(Random(0), True, **own)
    except CorpusError as error:
        raise CorpusError(f"the probe {probe} has no rows: {error}") from None
    return checked


def name_corpus(probe: str, settings: Mapping[str, Number] | None = None) -> str:
    """The name of the corpus of a probe, or of a set.

    Equal rows have one name: settings stand in the probe's own order, without those of the default.
    """
    parts, changes = [PREFIX + probe], settings or {}
    for name, default in (PROBES[probe].known_settings if changes else {}).items():
        value = changes.get(name, default)
        if value == default:
            continue
        digits = f"{value:.12f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        parts.append(f"{name}-{digits}")  # an exponent would be no number to `parse_corpus_name`
    return "-".join(parts)


def parse_corpus_name(corpus: str) -> tuple[str, dict[str, Number]]:
    """Probe or set and settings of the name of a corpus. Raises CorpusError for any other name."""
    name, *parts = corpus.removeprefix(PREFIX).split("-")
    probes = select_probes(name)
    known = {} if name in SETS else PROBES[probes[0]].known_settings
    changes: dict[str, Number] = {}
    for setting, value in zip(parts[::2], [*parts[1::2], ""], strict=False):
        if setting not in known:
            why = did_you_mean(setting, known) if known else "it is a set, whose rows have no settings"
            raise CorpusError(f'"{corpus}": no setting "{setting}" of the rows of {name}; {why}')
        if not value.replace(".", "", 1).isdecimal():
            raise CorpusError(f'"{corpus}": {setting} needs a number, such as {setting}-{known[setting]}')
        changes[setting] = float(value)
    changes = check_settings(name, changes) if changes else changes
    if (usual := name_corpus(name, changes)) != PREFIX + corpus.removeprefix(PREFIX):
        raise CorpusError(f'"{corpus}" has the rows of {usual}; use this name')
    return name, changes


def open_or_draw_corpus(corpus: str, store: str | Path | CorpusStore | None = None) -> Corpus:
    """A corpus by its name; the rows of a probe are drawn where they are missing.

    Raises the errors of `open_corpus` and of `import_probe`.
    """
    if corpus.startswith(PREFIX) and CorpusStore.open(store).find_manifest(corpus) is None:
        import_probe(corpus, store)
    return open_corpus(corpus, store)


def import_probe(
    corpus: str, store: str | Path | CorpusStore | None = None, *, replace: bool = False
) -> ImportResult:
    """Draw the rows of a probe's corpus, by its name, into a store.

    The corpus of a set has the rows of all its probes that are asked word by word, whose words start with the
    probe's name. Raises CorpusError for the name of no probe, and the errors of `import_corpus`.
    """
    name, changes = parse_corpus_name(corpus)
    sentences: dict[str, list[list[str]]] = {"train": [], "valid": [], "test": []}
    for probe in select_probes(name):
        if name in SETS and PROBES[probe].reads_last_state:
            continue
        prefix = f"{probe}:" if name in SETS else ""
        for split, (inputs, answers) in PROBES[probe].draw_rows(f"{corpus} {probe}", changes):
            words = [word if word == UNASKED else f"{prefix}{word}" for word in (*inputs, *answers)]
            sentences[split].append(words)
    return import_corpus(
        corpus,
        sentences,
        store,
        ImportOptions(vocabulary="all", unknown="refuse"),
        licence="drawn by memtune",
        replace=replace,
    )
