"""Another text of the store in the tokens of a model's vocabulary."""

from dataclasses import dataclass, replace

import numpy as np

from memtune.corpora import Corpus, Split, TextUnits, iterate_sentences, open_corpus
from memtune.corpora.store.shards import ShardArrays
from memtune.errors import CorpusError
from memtune.tracking import TextReader, find_text_rules

__all__ = ["OtherText", "make_reader", "read_other_text"]


@dataclass(frozen=True)
class OtherText:
    """A split of another corpus in a model's tokens, in memory; the corpus has it in place of every split."""

    corpus: Corpus
    units: TextUnits


def make_reader(corpus: Corpus) -> TextReader:
    """What makes tokens of a corpus's vocabulary of text."""
    ids = {token: number for number, token in enumerate(corpus.vocabulary.tokens)}
    return TextReader(find_text_rules(corpus), ids)


def read_other_text(model_corpus: Corpus, name: str, split: str, store: str) -> OtherText:
    """A split of the corpus `name` in the tokens of the corpus that a model was trained on.

    Raises CorpusError where the store lacks it, and TrackingError for a word that the vocabulary lacks where
    it has no `<unk>`.
    """
    other = open_corpus(name, store)
    reader = make_reader(model_corpus)
    ids: list[int] = []
    lengths: list[int] = []
    words = size = lost = 0
    for sentence in iterate_sentences(other, split):
        read = reader.read(sentence)
        ids += [*read.ids, 0]
        lengths.append(len(read.ids) + 1)
        words += len(sentence.split())
        size += len(sentence.encode()) + 1
        lost += len(read.unknown_words)
    lost += other.manifest.splits[split].oov_tokens
    if not words:
        raise CorpusError(f'the {split} split of "{name}" has no words')
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    text = Split(split, [ShardArrays(np.array(ids, np.int32), offsets)])
    splits = dict.fromkeys(("train", "valid", split), text)
    corpus = replace(
        model_corpus, name=other.name, digest=other.digest, splits=splits, annotations={}, joined=None
    )
    return OtherText(corpus, TextUnits(len(ids), words, size, len(lengths), lost))
