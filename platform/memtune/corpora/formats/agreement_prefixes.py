"""Number agreement as prefixes, one question per line: label of the number, TAB, words before the verb.

This is the simplified data of Linzen et al. (2016) (`numpred.test`), which StackNN (Hao et al. 2018) reads.
The labels are VBZ or VBP, sing or plur, or singular or plural. The file has no verb, so every question
compares the two forms of one verb, those of the options `singular` and `plural`. The form that the label
names is stored as the last word of the sentence.
"""

from collections.abc import Iterator
from functools import partial
from typing import Self

from pydantic import Field, model_validator

from memtune.corpora.blocks.example_blocks import Example, parse_blocks
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format, FormatOptions
from memtune.corpora.formats.agreement_lines import UNKNOWN_ATTRACTORS
from memtune.corpora.sources.line_reader import LineReader

_SINGULAR_LABELS = ("VBZ", "sing", "singular")
_PLURAL_LABELS = ("VBP", "plur", "plural")


class PrefixOptions(FormatOptions):
    """`singular` and `plural` are the forms to compare; `attractors` is their number for the whole file, as
    in `numpred.test.5`, where it is known.
    """

    singular: str = "is"
    plural: str = "are"
    attractors: int | None = Field(None, ge=0, le=2**31 - 1)

    @model_validator(mode="after")
    def _require_two_words(self) -> Self:
        if len(self.singular.split()) != 1 or len(self.plural.split()) != 1 or self.singular == self.plural:
            raise ValueError("singular and plural must be two different words, such as is and are")
        return self


def _read(reader: LineReader, options: PrefixOptions) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, partial(_parse_example, options))


def _parse_example(options: PrefixOptions, line: str) -> Example:
    label, _, prefix = line.partition("\t")
    words = prefix.split()
    forms = options.singular.strip(), options.plural.strip()
    if label.strip() not in (*_SINGULAR_LABELS, *_PLURAL_LABELS):
        raise BadLineError(f'the label "{label}" is none of {", ".join(_SINGULAR_LABELS + _PLURAL_LABELS)}')
    if not words:
        raise BadLineError("no words after the label and a TAB")
    right, wrong = forms if label.strip() in _SINGULAR_LABELS else reversed(forms)
    attractors = UNKNOWN_ATTRACTORS if options.attractors is None else options.attractors
    return Example([[*words, right]], {"agreement": [(0, len(words), right, wrong, attractors)]})


FORMAT = Format(
    _read,
    "number agreement by prefixes: VBZ or VBP, a TAB and the words before the verb",
    annotations=("agreement",),
    options=PrefixOptions,
)
