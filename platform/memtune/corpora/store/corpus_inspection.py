"""Verifying and describing a corpus of a store."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import Field

from memtune.arguments import CORPUS_NAME, check_type
from memtune.corpora.store.content_checks import ContentCheck
from memtune.corpora.store.corpus import Corpus, open_corpus
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import Manifest, StoredFile, check_name
from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.errors import CorpusError
from memtune.objective import Objective
from memtune.values import Value

_MAX_WORD_BYTES = 40
"""Longer than the mean word of any language that is written with blanks."""


def verify_corpus(name: str, store: str | Path | CorpusStore | None = None) -> list[str]:
    """Read every byte of a corpus and list its problems, file by file; [] for a valid corpus.

    The checks cover size and SHA-256 of each file, sentence boundaries, ids, annotations, and the counts and
    the digest of the manifest. Of "text+questions" both corpora are read. Raises CorpusError when a corpus
    does not exist or its manifest cannot be read.
    """
    check_type("name", name, str, CORPUS_NAME)
    place = CorpusStore.open(store)
    problems: list[str] = []
    for part in name.split("+"):
        manifest = place.read_manifest(part)
        check = ContentCheck(manifest, partial(_read_file, place, part), computes_digest=True)
        found = list(check.find_problems())
        if not found and check.digest != manifest.digest:
            found = [f"{part}/manifest.json: the digest is not that of the vocabulary and the tokens"]
        problems += found
    return problems


def _read_file(store: CorpusStore, name: str, file: StoredFile) -> pa.Buffer:
    return pa.py_buffer(b"".join(store.read_file(name, file)))


class LengthSummary(Value):
    """Tokens per sentence, `<eos>` included: quantiles and mean."""

    shortest: int
    median: float
    mean: float
    percentile_95: float
    longest: int


class CorpusDescription(Value):
    """A corpus as `memtune corpus show` prints it: manifest, most frequent tokens with counts, lengths.

    For "text+questions" it describes the text, and `joined` describes the corpus of the questions.
    """

    manifest: Manifest
    frequent: tuple[tuple[str, int], ...]
    lengths: dict[str, LengthSummary]
    joined: "CorpusDescription | None" = None
    tokeniser_document: str | None = Field(default=None, exclude=True, repr=False)
    """Says how tokens are shown (`show_tokens`)."""


def describe_corpus(name: str, store: str | Path | CorpusStore | None = None) -> CorpusDescription:
    """Describe a corpus with its ten most frequent tokens; raises as `open_corpus` does."""
    return _describe(open_corpus(name, store))


def _describe(corpus: Corpus) -> CorpusDescription:
    counted = zip(corpus.vocabulary.tokens, corpus.vocabulary.counts, strict=True)
    commonest = sorted(counted, key=lambda pair: -pair[1])[:10]
    lengths = {}
    for name, split in corpus.splits.items():
        median, percentile_95 = np.quantile(split.lengths, [0.5, 0.95])
        lengths[name] = LengthSummary(
            shortest=int(split.lengths.min()),
            median=float(median),
            mean=float(split.lengths.mean()),
            percentile_95=float(percentile_95),
            longest=int(split.lengths.max()),
        )
    return CorpusDescription(
        manifest=corpus.manifest,
        frequent=tuple(commonest),
        lengths=lengths,
        joined=_describe(corpus.joined) if corpus.joined else None,
        tokeniser_document=corpus.tokeniser_document,
    )


def remove_corpus(name: str, store: str | Path | CorpusStore | None = None) -> Manifest:
    """Remove a corpus from a store; returns its manifest. Raises CorpusError for an unknown name."""
    place = CorpusStore.open(store)
    with place.lock(check_name(name), resolve_cache_folder()):
        manifest = place.read_manifest(name)
        place.remove(manifest)
    return manifest


def rename_corpus(name: str, new_name: str, store: str | Path | CorpusStore | None = None) -> Manifest:
    """Give a corpus another name; its digest stays. Returns the new manifest.

    The files are copied, verified, and removed under the old name at the end, unless another process has
    replaced them meanwhile. Raises CorpusError for an unknown name, for one that exists, and for damaged
    files.
    """
    place = CorpusStore.open(store)
    with place.lock(check_name(new_name), resolve_cache_folder()):
        manifest = place.read_manifest(name)
        if place.find_manifest(new_name) is not None:
            raise CorpusError(
                f'{place.folder} already has a corpus "{new_name}"; remove it, or choose another name'
            )
        with place.create_folder(new_name, manifest.folder) as corpus:
            for file in manifest.files:
                with corpus.create_file(file.path) as sink:
                    for piece in place.read_file(name, file):
                        sink.write(piece)
            renamed = manifest.model_copy(update={"name": new_name})
            place.commit(renamed)
    with place.lock(name, resolve_cache_folder()):
        if place.find_manifest(name) == manifest:  # else it was replaced meanwhile
            place.remove(manifest)
    return renamed


@dataclass(frozen=True)
class TextUnits:
    """The size of a text in tokens, `<eos>` included, words, UTF-8 bytes and sentences.

    `lost` counts the words or other tokens that became `<unk>`, whose bytes a model does not predict.
    """

    tokens: int
    words: int
    bytes: int
    sentences: int
    lost: int = 0

    @property
    def has_words(self) -> bool:
        """Whether blanks divide the text into words, as they do not in Chinese."""
        return self.bytes <= _MAX_WORD_BYTES * self.words

    def compute_figures(self, loss: float) -> dict[str, float]:
        """Perplexity per word and per byte, and bits per byte, of a loss in nats per token.

        Lower is better; where `lost_share`, the share of lost tokens, is above 0, they are lower bounds. The
        end of a sentence counts as a word, so that a model of words has its perplexity per token.
        """
        nats = loss * self.tokens
        return {
            "word_perplexity": Objective.PERPLEXITY.compute_figure(nats / (self.words + self.sentences)),
            "byte_perplexity": Objective.PERPLEXITY.compute_figure(nats / self.bytes),
            "bits_per_byte": nats / self.bytes / math.log(2),
            "lost_share": self.lost / max(1, self.tokens),
        }


def count_text_units(corpus: Corpus, split: str) -> TextUnits:
    """The units of a split.

    For corpora of earlier versions they are counted from its words, `<unk>` as it is written.
    """
    summary = corpus.manifest.splits[split]
    if summary.words is not None and summary.bytes is not None:
        return TextUnits(summary.tokens, summary.words, summary.bytes, summary.sentences, summary.oov_tokens)
    text = corpus[split]
    sizes = np.array([len(token.encode()) for token in corpus.vocabulary.tokens])
    sizes[0] = 0
    full = int(np.count_nonzero(text.lengths > 1))
    words = text.token_count - text.sentence_count
    content = sum(int(sizes[ids].sum()) for ids in text.iterate_tokens()) + words - full + text.sentence_count
    return TextUnits(text.token_count, words, content, text.sentence_count, summary.oov_tokens)
