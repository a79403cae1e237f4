"""The MSR sentence completion challenge: questions of five sentences that differ in one word.

Zweig and Burges (2011), "The Microsoft Research Sentence Completion Challenge". One candidate per line,
`12c) ... [word] ...`, with a number for the question and a letter for the candidate. The candidates of a
question differ in the brackets only, and no two are the same. The answers are in a file of such lines, or of
indices from 0, one line per question: the file of the option `answers`, else the file next to the questions
with `answers` or `labels` in its name in place of `questions`. Without such a file they are unknown.

Case is kept. A final full stop is a word of its own. The options `final` and `clitics` adapt the words to the
text of a language model.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from memtune.corpora.formats.conllu import drop_punctuation, read_parsed_sentences
from memtune.corpora.formats.prose_texts import FINAL_SIGNS, ProseOptions, split_clitics
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    parse_blocks,
    parse_number,
)
from memtune.errors import CorpusError
from memtune.number_format import format_count

# Possessive quantifiers: without them a long row of spaces without a bracket takes quadratic time.
_CANDIDATE_PATTERN = re.compile(r"\s*+(\d++)([a-z])\)\s++([^\[\]]*+)\[([^\[\]]*+)\]([^\[\]]*+)")
_ORD_A = ord("a")

_Answer = tuple[int, str | None]
"""The index of the right candidate, and its words in brackets where the file of answers has them."""


class CompletionOptions(ProseOptions):
    """Those of prose. `answers` is a file.

    `trees` is a CoNLL-U file of all candidates in their order, with the same words, or a folder with one for
    each file of questions: valid.conllu for valid.txt. `punctuation = "drop"` then leaves out words with the
    relation `punct`.
    """

    answers: Path | None = None
    trees: Path | None = None
    punctuation: Literal["keep", "drop"] = "keep"

    @model_validator(mode="after")
    def _require_trees_for_punctuation(self) -> Self:
        if self.punctuation == "drop" and self.trees is None:
            raise ValueError('punctuation = "drop" needs trees, whose relations mark punctuation')
        return self


def _read(reader: LineReader, options: CompletionOptions) -> Iterator[Block]:
    beside = [
        reader.path.with_name(reader.path.name.replace("questions", word)) for word in ("answers", "labels")
    ]
    found = (place for place in beside if place != reader.path and os.path.isfile(place))
    path = options.answers or next(found, None)
    answers = _read_answers(reader.open_companion(path, "the file of answers")) if path else None
    example = partial(_parse_example, options, answers)
    if options.trees:
        is_folder = options.trees.is_dir()
        place = options.trees / f"{reader.path.stem}.conllu" if is_folder else options.trees
        trees = reader.open_companion(place, "the file of trees")
        example = partial(_attach_trees, options, read_parsed_sentences(trees), example)
    questions = 0
    for block in parse_blocks(reader, _group_questions(reader), example):
        questions += len(block.annotations["completion"])
        yield block
    if answers is None:
        reader.notes.append(
            f"{reader.name} has no answers: models can answer these questions but get no score; name the "
            "file of answers with --option answers=FILE"
        )
    elif len(answers) > questions:
        count = format_count(len(answers), "question")
        reader.notes.append(f"{path} has answers to {count}, {reader.name} {questions:,}")


def _read_answers(reader: LineReader) -> dict[str, _Answer]:
    """The right candidate of each question, by the question's number."""
    answers: dict[str, _Answer] = {}
    for number, line in reader.read_lines():
        candidate = _CANDIDATE_PATTERN.fullmatch(line)
        if candidate:
            answers[candidate[1]] = ord(candidate[2]) - _ORD_A, candidate[4]
        elif line.strip().isdecimal():
            try:
                answers[str(number)] = parse_number(line, "the answer"), None
            except BadLineError as error:
                raise CorpusError(f"{reader.name}: line {number}: {error.reason}") from None
        elif line.strip():
            raise CorpusError(f'{reader.name}: line {number}: neither "12c) ... [word] ..." nor a number')
    return answers


def _group_questions(reader: LineReader) -> Iterator[tuple[int, list[str]]]:
    """The lines of each question: consecutive lines with the same number."""
    lines: list[str] = []
    first, current = 0, ""
    for number, line in reader.read_full_lines():
        candidate = _CANDIDATE_PATTERN.fullmatch(line)
        question = candidate[1] if candidate else f"line {number}"
        if lines and (question != current or (candidate and candidate[2] == "a")):
            yield first, lines
            lines = []
        if not lines:
            first, current = number, question
        lines.append(line)
    if lines:
        yield first, lines


def _parse_example(
    options: CompletionOptions, answers: dict[str, _Answer] | None, lines: Sequence[str]
) -> Example:
    candidates = [found for found in map(_CANDIDATE_PATTERN.fullmatch, lines) if found]
    if not candidates:
        raise BadLineError('not "12c) ... [word] ..."')
    question = candidates[0][1]
    letters = "".join(candidate[2] for candidate in candidates)
    if letters != "".join(chr(_ORD_A + place) for place in range(len(lines))) or len(lines) < 2:
        raise BadLineError(
            f"question {question} has the candidates {', '.join(letters)} instead of a, b, c, ..."
        )
    sentences = [_split_candidate(options, *candidate.groups()[2:]) for candidate in candidates]
    _check_candidates(question, candidates, sentences)
    blank = len(_split_words(options, candidates[0][3]))
    answer, right = (-1, None) if answers is None else answers.get(question, (-1, None))
    if answer >= len(lines) or (answers is not None and answer < 0):
        raise BadLineError(f"question {question} has no answer among its candidates")
    if right is not None and candidates[answer][4].split() != right.split():
        raise BadLineError(
            f"the answer to question {question} is {letters[answer]}, [{right}], but its candidate "
            f"{letters[answer]} is [{candidates[answer][4]}]"
        )
    return Example(sentences, {"completion": [(0, len(lines), blank, answer, question)]})


def _check_candidates(
    question: str, candidates: Sequence[re.Match[str]], sentences: Sequence[list[str]]
) -> None:
    """Raise BadLineError for candidates that differ outside the brackets, are empty, or are the same."""
    if len({(" ".join(found[3].split()), " ".join(found[5].split())) for found in candidates}) > 1:
        raise BadLineError(f"question {question} has candidates that differ outside the brackets")
    if not all(found[4].split() for found in candidates):
        raise BadLineError(f"question {question} has a candidate without a word in the brackets")
    places = [sentences.index(sentence) for sentence in sentences]
    for place, first in enumerate(places):
        if first != place:
            letters = f"{chr(_ORD_A + first)} and {chr(_ORD_A + place)}"
            raise BadLineError(f"question {question} has the same candidate twice, {letters}")


def _attach_trees(
    options: CompletionOptions,
    parsed: Iterator[Example],
    read: Callable[[Sequence[str]], Example],
    lines: Sequence[str],
) -> Example:
    """The question of some lines, with the next trees of the file, one for each candidate."""
    found = list(islice(parsed, len(lines)))
    example = read(lines)
    sentences, trees = [], []
    for candidate, tree in zip_longest(example.sentences, found):
        if tree is None or list(tree.sentences[0]) != list(candidate):
            raise BadLineError(f'the tree of "{" ".join(candidate)}" is not the next one in {options.trees}')
        words, arcs = tree.sentences[0], tree.rows["trees"][0]
        if options.punctuation == "drop":
            words, arcs = drop_punctuation(words, arcs)
        sentences.append(words)
        trees.append(arcs)
    first, candidates, _, answer, question = example.rows["completion"][0]
    differing = (place for place, words in enumerate(zip_longest(*sentences)) if len(set(words)) > 1)
    if (blank := next(differing, None)) is None:
        raise BadLineError(f"question {question} has candidates that differ in punctuation alone")
    return Example(sentences, {"completion": [(first, candidates, blank, answer, question)], "trees": trees})


def _split_candidate(options: CompletionOptions, before: str, word: str, after: str) -> list[str]:
    words = [*_split_words(options, before), *_split_words(options, word)]
    last = after.split()
    if last and last[-1].endswith(FINAL_SIGNS):
        last[-1:] = [part for part in (last[-1][:-1], last[-1][-1]) if part]
        if options.final == "drop":
            last.pop()
    return [*words, *_split_words(options, " ".join(last))]


def _split_words(options: CompletionOptions, text: str) -> list[str]:
    words = text.split()
    return words if options.clitics == "keep" else [part for word in words for part in split_clitics(word)]


FORMAT = Format(
    _read,
    "MSR sentence completion: candidates as 12c) ... [word] ..., answers in a second file",
    annotations=("completion", "trees"),
    options=CompletionOptions,
)
