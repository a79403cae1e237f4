"""Number agreement as two files whose lines belong together: sentences, and what is asked of each.

Of Linzen et al. (2016), as prepared for Gulordava et al. (2018). `NAME.text` has a sentence a line, which may
end in `<eos>`; `NAME.gold` beside it, or the file of the option `gold`, has TAB-separated the position of the
verb from 0, its right and its wrong form, and the number of attractors.
"""

from collections.abc import Iterator
from pathlib import Path

from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.corpora.vocabulary import EOS
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]

_COLUMNS = 4


class AgreementOptions(Value):
    """`gold` is the file with the verbs, where it is not beside the text under its name."""

    gold: Path | None = None


def _read(reader: LineReader, options: AgreementOptions) -> Iterator[Block]:
    gold = options.gold or reader.path.with_suffix(".gold")
    if not gold.is_file():
        raise CorpusError(
            f"{reader.path}: its verbs should be in {gold}, which does not exist; name them with "
            "--option gold=FILE"
        )
    verbs = reader.beside(gold)
    return parsed_blocks(reader, _pairs(reader, verbs), _example)


def _pairs(reader: LineReader, verbs: LineReader) -> Iterator[tuple[int, tuple[str, str]]]:
    texts, golds = reader.lines(), verbs.lines()
    for number, text in texts:
        gold = next(golds, None)
        if gold is None:
            raise CorpusError(f"{verbs.path} ends after {number - 1} lines, {reader.path} goes on")
        if text.strip() or gold[1].strip():
            yield number, (text, gold[1])
    if any(line.strip() for _, line in golds):
        raise CorpusError(f"{verbs.path} has more lines than {reader.path}")


def _example(lines: tuple[str, str]) -> Example:
    words = lines[0].split()
    if words[-1:] == [EOS]:
        words.pop()
    columns = lines[1].split("\t")
    if len(columns) != _COLUMNS or not (columns[0].isdecimal() and columns[3].strip().isdecimal()):
        raise BadLineError("its line of gold is not position, right form, wrong form and attractors")
    verb, right, wrong, attractors = int(columns[0]), columns[1], columns[2], int(columns[3])
    if len(right.split()) != 1 or len(wrong.split()) != 1:
        raise BadLineError(f'"{right}" and "{wrong}" are no forms of a verb')
    if verb >= len(words) or words[verb].lower() != right.lower():
        found = f'"{words[verb]}"' if verb < len(words) else "nothing"
        raise BadLineError(f'word {verb} is {found}, its line of gold says "{right}"')
    if words[verb] != right:  # forms go by the sentence's spelling
        wrong = wrong.lower() if words[verb].islower() else wrong.capitalize()
    return Example([words], {"agreement": [(0, verb, words[verb], wrong, attractors)]})


FORMAT = Format(
    _read,
    "number agreement: sentences in NAME.text, verbs and their other forms in NAME.gold",
    annotations=("agreement",),
    options=AgreementOptions,
)
