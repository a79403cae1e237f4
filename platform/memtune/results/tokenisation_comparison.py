"""The best models of corpora with different tokens, compared by bits per byte of one validation text."""

import math
from collections.abc import Sequence

from memtune.corpora import Corpus, count_text_units, open_corpus
from memtune.errors import TrackingError
from memtune.objective import Objective
from memtune.results.comparison import compare
from memtune.settings import Settings
from memtune.tracking import LeaderboardRow
from memtune.values import Value


class TokenisationRow(Value):
    """The best trial of one corpus, in units that do not depend on its tokens."""

    corpus: str
    tokens: str
    """What its tokens are: words, characters, bpe:8000."""
    vocabulary: int
    name: str
    family: str
    parameters: int | None
    token_perplexity: float
    word_perplexity: float
    byte_perplexity: float
    bits_per_byte: float
    """Lower is better."""
    lost_share: float
    """Share of the tokens that are `<unk>` for other words; above 0 the other figures are lower bounds."""


def compare_tokenisations(
    corpora: Sequence[str], protocol: str | None = None, settings: Settings | None = None
) -> list[TokenisationRow]:
    """The best trial of each corpus, fewest bits per byte first; those with lost words come last.

    Raises TrackingError where the corpora have different validation texts, or their trials another objective
    or protocols.
    """
    settings = Settings.resolve(settings)
    opened = [open_corpus(name, settings.corpus_store) for name in corpora]
    _require_one_text(opened)
    found = [compare(name, protocol, None, settings) for name in corpora]
    labels = sorted({comparison.protocol for comparison in found})
    if len(labels) > 1 or found[0].rows[0].objective is not Objective.PERPLEXITY:
        raise TrackingError(
            "bits per byte compare for language models under one protocol; the trials have "
            f"{' and '.join(labels)}"
        )
    rows = [_make_row(corpus, comparison.rows[0]) for corpus, comparison in zip(opened, found, strict=True)]
    return sorted(rows, key=lambda row: (row.lost_share > 0, row.bits_per_byte))


def _make_row(corpus: Corpus, best: LeaderboardRow) -> TokenisationRow:
    if best.figure is None:
        raise TrackingError(f'no trial on corpus "{corpus.name}" has a validation yet')
    if not corpus.digest.startswith(best.corpus_digest):
        raise TrackingError(
            f'the trials of "{corpus.name}" read another text of this name; import that text again'
        )
    figure = best.ranked_figure
    assert figure is not None
    loss = math.log(figure)
    units = count_text_units(corpus, "valid")
    return TokenisationRow(
        corpus=corpus.name,
        tokens=corpus.manifest.options.tokens,
        vocabulary=len(corpus.vocabulary),
        name=best.name,
        family=best.family,
        parameters=best.parameter_count,
        token_perplexity=Objective.PERPLEXITY.compute_figure(loss),
        word_perplexity=units.compute_word_perplexity(loss),
        byte_perplexity=units.compute_byte_perplexity(loss),
        bits_per_byte=units.compute_bits_per_byte(loss),
        lost_share=units.lost / max(1, units.tokens),
    )


def _require_one_text(corpora: Sequence[Corpus]) -> None:
    """Raise TrackingError unless the validation splits were made of one text, spelled in one way."""
    texts = set()
    for corpus in corpora:
        source = corpus.manifest.sources.get("valid")
        options = corpus.manifest.options
        spelling = (options.lower_case, options.unescape, options.normalise)
        texts.add((source and (source.sha256, source.division), spelling))
    if len(texts) > 1 or None in {text[0] for text in texts}:
        names = " and ".join(f'"{corpus.name}"' for corpus in corpora)
        raise TrackingError(
            f"{names} have different validation texts or spellings, so that no unit makes their figures "
            "comparable; import one text with different --tokens"
        )
