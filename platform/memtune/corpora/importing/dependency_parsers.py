"""Parse a text into CoNLL-U with spaCy or stanza, which the user installs.

Nothing else in memtune needs them: the import reads the CoNLL-U of any parser. Sentence and word
boundaries are those of the text's format; the parser does not change them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from memtune.corpora.importing.import_sources import find_format, parse_options
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceFile
from memtune.corpora.text_blocks import TextFile
from memtune.errors import CorpusError, did_you_mean

_SENTENCES_PER_CALL = 256


ParsedSentence = Sequence[tuple[str, int, str]]
"""The words of a sentence, each with the position of its head (-1 for a root's) and its relation."""
Parser = Callable[[Sequence[Sequence[str]]], Iterator[ParsedSentence]]


def parse_file(text: TextFile, target: Path, parser: str, model: str) -> int:
    """Parses the sentences of a text into a CoNLL-U file; returns the number of sentences with words.

    `parser` is one of PARSERS. `model` is a spaCy pipeline such as "en_core_web_sm" or a stanza language such
    as "en". Raises CorpusError for a parser or a model that is not installed and for a text that cannot be
    read.
    """
    if parser not in PARSERS:
        raise CorpusError(f'no parser "{parser}"; {did_you_mean(parser, PARSERS)}')
    parse, sentences = PARSERS[parser](model), _read_sentences(text)
    count = 0
    try:
        with target.open("w", encoding="utf-8") as file:
            while batch := list(islice(sentences, _SENTENCES_PER_CALL)):
                for sentence in parse(batch):
                    for place, (word, head, relation) in enumerate(sentence, start=1):
                        file.write(f"{place}\t{word}\t_\t_\t_\t_\t{head + 1}\t{relation}\t_\t_\n")
                    file.write("\n")
                    count += 1
        return count
    except OSError as error:
        raise CorpusError(f"cannot write {target}: {error.strerror}") from None


def _read_sentences(text: TextFile) -> Iterator[list[str]]:
    """Yields the words of each sentence that has at least one word."""
    format, options = find_format(text), parse_options(text)
    with closing(LineReader(SourceFile(text.path, "the text"))) as reader:
        if reader.is_folder and not format.reads_folders:
            raise CorpusError(f"the text {reader.name} is several files; parse them one by one")
        for block in format.read(reader, options):
            words, stops = block.words.to_pylist(), np.cumsum(block.lengths)
            for stop, length in zip(stops, block.lengths, strict=True):
                if length > 1:
                    yield words[stop - length : stop - 1]


def _load_spacy(model: str) -> Parser:
    spacy = _import_parser_package("spacy")
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

    def parser(sentences: Sequence[Sequence[str]]) -> Iterator[ParsedSentence]:
        for parsed in pipeline.pipe(map(document, sentences)):
            yield [
                (word.text, -1, "root") if word.head.i == word.i else (word.text, word.head.i, word.dep_)
                for word in parsed
            ]

    return parser


def _load_stanza(model: str) -> Parser:
    stanza = _import_parser_package("stanza")
    processors = "tokenize,pos,lemma,depparse"
    try:
        pipeline = stanza.Pipeline(
            model, processors=processors, tokenize_pretokenized=True, download_method=None
        )
    except Exception as error:  # stanza raises its own classes, OSError, requests' and torch's errors
        raise CorpusError(
            f'stanza cannot parse "{model}" ({error}); get its models with stanza.download("{model}")'
        ) from None

    def parser(sentences: Sequence[Sequence[str]]) -> Iterator[ParsedSentence]:
        for parsed in pipeline([list(words) for words in sentences]).sentences:
            yield [(word.text, word.head - 1, word.deprel) for word in parsed.words]

    return parser


def _import_parser_package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise CorpusError(
            f"{name} is not installed; pip install {name}, or parse the text elsewhere and import its CoNLL-U"
        ) from None


PARSERS: Mapping[str, Callable[[str], Parser]] = {"spacy": _load_spacy, "stanza": _load_stanza}
"""Functions that load a parser from the name of a model, by name of the package."""
