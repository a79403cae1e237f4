"""The MSR sentence completion challenge: questions of five sentences that differ in one word.

Zweig and Burges (2011), "The Microsoft Research Sentence Completion Challenge". A candidate a line,
`12c) ... [word] ...`, questions numbered, candidates lettered. The right answers are in a file of such lines
or of their places from 0, a line a question: that of the option `answers`, else one beside the questions with
`answers` or `labels` in its name where theirs has `questions`; without one they are unknown.

Case is kept. A full stop at the end, if there is one, is a word of its own. The options `final` and `clitics`
fit the words to the text of a language model.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.formats.conllu import parsed_sentences, without_punctuation
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.corpora.tokenising import split_clitics
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]

_CANDIDATE = re.compile(r"\s*(\d+)([a-z])\)\s+([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)")
_FINAL = (".", "!", "?")
_ORD_A = ord("a")


class CompletionOptions(Value):
    """`answers` is a file; `final` says what becomes of a sign that ends the sentence, `clitics` of `'s`.

    With `clitics = "split"` words are cut as in the Penn Treebank: `girl 's`, `do n't`. `trees` is a CoNLL-U
    file of all candidates in their order, whose words are these; with `punctuation = "drop"` words with the
    relation `punct` are then left out.
    """

    answers: Path | None = None
    final: Literal["keep", "drop"] = "keep"
    clitics: Literal["keep", "split"] = "keep"
    trees: Path | None = None
    punctuation: Literal["keep", "drop"] = "keep"

    @model_validator(mode="after")
    def _trees_tell_punctuation(self) -> Self:
        if self.punctuation == "drop" and self.trees is None:
            raise ValueError('punctuation = "drop" needs trees, whose relations tell what is punctuation')
        return self


def _read(reader: LineReader, options: CompletionOptions) -> Iterator[Block]:
    path = options.answers or _beside(reader.path)
    if path and not path.is_file():
        raise CorpusError(f"{reader.path}: its answers should be in {path}, which does not exist")
    answers = _answers(reader.beside(path)) if path else None
    example = partial(_example, options, answers)
    if options.trees:
        example = partial(_with_trees, options, parsed_sentences(reader.beside(options.trees)), example)
    questions = 0
    for block in parsed_blocks(reader, _questions(reader), example):
        questions += len(block.annotations["completion"])
        yield block
    if answers is None:
        reader.notes.append(
            f"{reader.path} has no answers: models can be asked these questions, not judged by them; name "
            "the file with --option answers=FILE"
        )
    elif len(answers) > questions:
        reader.notes.append(f"{path} has answers to {len(answers):,} questions, {reader.path} {questions:,}")


def _beside(path: Path) -> Path | None:
    names = (path.name.replace("questions", word) for word in ("answers", "labels"))
    return next(
        (path.with_name(name) for name in names if name != path.name and path.with_name(name).is_file()), None
    )


def _answers(reader: LineReader) -> dict[str, int]:
    """The place of the right candidate by the question's number."""
    answers: dict[str, int] = {}
    for number, line in reader.lines():
        candidate = _CANDIDATE.fullmatch(line)
        if candidate:
            answers[candidate[1]] = ord(candidate[2]) - _ORD_A
        elif line.strip().isdecimal():
            answers[str(number)] = int(line)
        elif line.strip():
            raise CorpusError(f'{reader.path}: line {number}: neither "12c) ... [word] ..." nor a number')
    return answers


def _questions(reader: LineReader) -> Iterator[tuple[int, list[str]]]:
    """The lines of each question: those after one another with the same number."""
    lines: list[str] = []
    first, current = 0, ""
    for number, line in reader.lines():
        if not line.strip():
            continue
        candidate = _CANDIDATE.fullmatch(line)
        question = candidate[1] if candidate else f"line {number}"
        if lines and (question != current or (candidate and candidate[2] == "a")):
            yield first, lines
            lines = []
        if not lines:
            first, current = number, question
        lines.append(line)
    if lines:
        yield first, lines


def _example(options: CompletionOptions, answers: dict[str, int] | None, lines: Sequence[str]) -> Example:
    candidates = [_CANDIDATE.fullmatch(line) for line in lines]
    if candidates[0] is None:
        raise BadLineError('not "12c) ... [word] ..."')
    question = candidates[0][1]
    letters = "".join(candidate[2] for candidate in candidates if candidate)
    if letters != "".join(chr(_ORD_A + place) for place in range(len(lines))) or len(lines) < 2:
        raise BadLineError(
            f"question {question} has the candidates {', '.join(letters)} instead of a, b, c, ..."
        )
    sentences = [_words(options, *candidate.groups()[2:]) for candidate in candidates if candidate]
    blanks = {len(_cut(options, candidate[3])) for candidate in candidates if candidate}
    if len(blanks) > 1 or any(not candidate[4].split() for candidate in candidates if candidate):
        raise BadLineError(f"question {question} has candidates of different sentences")
    answer = -1 if answers is None else answers.get(question, -1)
    if answer >= len(lines) or (answers is not None and answer < 0):
        raise BadLineError(f"question {question} has no answer among its candidates")
    return Example(sentences, {"completion": [(0, len(lines), blanks.pop(), answer, question)]})


def _with_trees(
    options: CompletionOptions,
    parsed: Iterator[Example],
    read: Callable[[Sequence[str]], Example],
    lines: Sequence[str],
) -> Example:
    """The question that is read from some lines, with the trees that come next."""
    found = list(islice(parsed, len(lines)))
    example = read(lines)
    sentences, trees = [], []
    for candidate, tree in zip_longest(example.sentences, found):
        if tree is None or list(tree.sentences[0]) != list(candidate):
            raise BadLineError(f'the tree of "{" ".join(candidate)}" is not the next one in {options.trees}')
        words, arcs = tree.sentences[0], tree.rows["trees"][0]
        if options.punctuation == "drop":
            words, arcs = without_punctuation(words, arcs)
        sentences.append(words)
        trees.append(arcs)
    first, candidates, _, answer, question = example.rows["completion"][0]
    blank = next(place for place, words in enumerate(zip_longest(*sentences)) if len(set(words)) > 1)
    return Example(sentences, {"completion": [(first, candidates, blank, answer, question)], "trees": trees})


def _words(options: CompletionOptions, before: str, word: str, after: str) -> list[str]:
    words = [*_cut(options, before), *_cut(options, word)]
    last = after.split()
    if last and last[-1].endswith(_FINAL):
        last[-1:] = [part for part in (last[-1][:-1], last[-1][-1]) if part]
        if options.final == "drop":
            last.pop()
    return [*words, *_cut(options, " ".join(last))]


def _cut(options: CompletionOptions, text: str) -> list[str]:
    words = text.split()
    return words if options.clitics == "keep" else [part for word in words for part in split_clitics(word)]


FORMAT = Format(
    _read,
    "MSR sentence completion: candidates as 12c) ... [word] ..., answers in a file beside",
    annotations=("completion", "trees"),
    options=CompletionOptions,
)
