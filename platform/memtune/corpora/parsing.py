"""Text to dependency trees by a parser the user has: spaCy or stanza, out as CoNLL-U.

Neither comes with memtune nor is needed for anything else: CoNLL-U of any other parser is imported alike.
Sentences and words are those that the text's format tells; the parser keeps to both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memtune.corpora.formats import FORMATS
from memtune.corpora.sources import LineReader, TextFile
from memtune.errors import CorpusError, did_you_mean
from memtune.values import parse

__all__ = ["PARSERS", "Tree", "conllu", "parse_file"]

_SENTENCES_AT_ONCE = 256


class Tree(NamedTuple):
    """A parsed sentence: its words, the position of each one's head (-1 for a root's) and its relation."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


Parser = Callable[[Sequence[Sequence[str]]], Iterator[Tree]]


def parse_file(text: TextFile, target: Path, parser: str, model: str) -> int:
    """Parses the sentences of a text into a CoNLL-U file; how many there were, those without words left out.

    `parser` is one of PARSERS, `model` a name it knows: of spaCy a pipeline such as "en_core_web_sm", of
    stanza a language such as "en". Raises CorpusError for a parser or a model that is not there, and for a
    text that cannot be read.
    """
    if parser not in PARSERS:
        raise CorpusError(f'there is no parser "{parser}"; {did_you_mean(parser, PARSERS)}')
    trees = _trees(PARSERS[parser](model), _sentences(text))
    try:
        with target.open("w", encoding="utf-8") as file:
            return sum(bool(file.write(conllu(tree))) for tree in trees)
    except OSError as error:
        raise CorpusError(f"cannot write {target}: {error.strerror}") from None


def conllu(tree: Tree) -> str:
    """A tree in ten columns a word, the last line blank."""
    rows = zip(tree.words, tree.heads, tree.relations, strict=True)
    lines = [
        f"{place}\t{word}\t_\t_\t_\t_\t{head + 1}\t{relation}\t_\t_"
        for place, (word, head, relation) in enumerate(rows, start=1)
    ]
    return "\n".join([*lines, "", ""])


def _trees(parser: Parser, sentences: Iterator[Sequence[str]]) -> Iterator[Tree]:
    while some := list(islice(sentences, _SENTENCES_AT_ONCE)):
        yield from parser(some)


def _sentences(text: TextFile) -> Iterator[list[str]]:
    """The words of each sentence that has any."""
    if text.format not in FORMATS:
        raise CorpusError(f'no format "{text.format}"; {did_you_mean(text.format, FORMATS)}')
    format = FORMATS[text.format]
    options = parse(format.options, dict(text.options), f"format {text.format}")
    for block in format.read(LineReader(text.path), options):
        words, stops = block.words.to_pylist(), np.cumsum(block.lengths)
        sentences = (
            words[stop - length : stop - 1] for stop, length in zip(stops, block.lengths, strict=True)
        )
        yield from filter(None, sentences)


def _spacy(model: str) -> Parser:
    spacy = _module("spacy")
    try:
        pipeline = spacy.load(model)
    except OSError:
        raise CorpusError(
            f'spaCy has no pipeline "{model}"; get one with python -m spacy download {model}'
        ) from None

    def document(words: Sequence[str]) -> Any:
        found = spacy.tokens.Doc(pipeline.vocab, words=list(words))
        for place, token in enumerate(found):
            token.is_sent_start = place == 0
        return found

    def parser(sentences: Sequence[Sequence[str]]) -> Iterator[Tree]:
        for parsed in pipeline.pipe(map(document, sentences)):
            roots = [token.head.i == token.i for token in parsed]
            yield Tree(
                tuple(token.text for token in parsed),
                tuple(-1 if root else token.head.i for token, root in zip(parsed, roots, strict=True)),
                tuple("root" if root else token.dep_ for token, root in zip(parsed, roots, strict=True)),
            )

    return parser


def _stanza(model: str) -> Parser:
    stanza = _module("stanza")
    processors = "tokenize,pos,lemma,depparse"
    try:
        pipeline = stanza.Pipeline(
            model, processors=processors, tokenize_pretokenized=True, download_method=None
        )
    except Exception as error:  # of many kinds, one of them stanza's own
        raise CorpusError(
            f'stanza cannot parse "{model}" ({error}); get its models with stanza.download("{model}")'
        ) from None

    def parser(sentences: Sequence[Sequence[str]]) -> Iterator[Tree]:
        for parsed in pipeline([list(words) for words in sentences]).sentences:
            yield Tree(
                tuple(word.text for word in parsed.words),
                tuple(word.head - 1 for word in parsed.words),
                tuple(word.deprel for word in parsed.words),
            )

    return parser


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise CorpusError(
            f"{name} is not installed; pip install {name}, or parse the text elsewhere and import its CoNLL-U"
        ) from None


PARSERS: Mapping[str, Callable[[str], Parser]] = {"spacy": _spacy, "stanza": _stanza}
"""Name -> what makes a parser of a model's name."""
