"""How a registered model reads text: how words are split, their case, and what an unknown word is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memtune.corpora import Corpus
from memtune.corpora.importing.tokenizer import split_clitics, tokenise
from memtune.errors import TrackingError
from memtune.values import Value

__all__ = ["ReadText", "TextReader", "TextRules", "find_text_rules"]

EOS, UNK = "<eos>", "<unk>"
MAX_CAPITALISED_SHARE = 0.02
"""The largest share of tokens with a capital letter in a vocabulary of lower-cased text: Penn Treebank's has
one, the "N" that stands for numbers."""
PROSE_FORMATS = ("gutenberg",)
"""Formats of which memtune's own tokeniser makes words."""


class TextRules(Value):
    """What the corpus's import did to words, as far as it applies to a text that is given to a model.

    `tokeniser`: words are separated by blanks, or split from prose with its signs. `split_clitics` splits
    words as the Penn Treebank: `do n't`. `casing`: a word is looked up in lower case ("lower"), as written
    ("keep"), or as written and then in lower case, for a corpus without capital letters ("fold"). With
    `unknown = "refuse"` a word that the vocabulary lacks is an error, with "map" it is read as `<unk>`.
    """

    tokeniser: Literal["blanks", "prose"] = "blanks"
    split_clitics: bool = False
    casing: Literal["keep", "lower", "fold"] = "keep"
    unknown: Literal["map", "refuse"] = "map"


@dataclass(frozen=True)
class ReadText:
    """A text as token ids, without `<eos>`, and the words that the vocabulary lacks."""

    ids: list[int]
    unknown_words: list[str]


def find_text_rules(corpus: Corpus) -> TextRules:
    """The rules of a corpus: those of its import, and of its vocabulary where it came in lower case."""
    manifest = corpus.manifest
    source = manifest.sources.get("train") or next(iter(manifest.sources.values()))
    tokens = [token for token in corpus.vocabulary.tokens if not token.startswith("<")]
    capitalised = sum(token != token.lower() for token in tokens)
    if manifest.options.lower_case:
        casing: Literal["keep", "lower", "fold"] = "lower"
    else:
        casing = "fold" if capitalised <= MAX_CAPITALISED_SHARE * len(tokens) else "keep"
    return TextRules(
        tokeniser="prose" if source.format in PROSE_FORMATS else "blanks",
        split_clitics=source.options.get("clitics") == "split",
        casing=casing,
        unknown="map" if UNK in corpus.vocabulary.tokens else "refuse",
    )


class TextReader:
    """Makes token ids of texts, by a model's rules and vocabulary."""

    def __init__(self, rules: TextRules, id_by_token: Mapping[str, int]) -> None:
        self._rules, self._id_by_token = rules, id_by_token

    def read(self, text: str) -> ReadText:
        """The ids of a text's words. Raises TrackingError for an unknown word that cannot be replaced."""
        ids: list[int] = []
        unknown: list[str] = []
        for word in self.split(text):
            found = self._find_id(word)
            if found is None:
                unknown.append(word)
                found = self._find_unknown_id(word)
            ids.append(found)
        return ReadText(ids, unknown)

    def split(self, text: str) -> list[str]:
        """The words of a text; its case is kept."""
        words = tokenise(text) if self._rules.tokeniser == "prose" else text.split()
        return (
            [part for word in words for part in split_clitics(word)] if self._rules.split_clitics else words
        )

    def _find_id(self, word: str) -> int | None:
        spellings = {"keep": [word], "lower": [word.lower()], "fold": [word, word.lower()]}
        # The special tokens have one spelling.
        known = [word] if word in (EOS, UNK) else spellings[self._rules.casing]
        return next((self._id_by_token[token] for token in known if token in self._id_by_token), None)

    def _find_unknown_id(self, word: str) -> int:
        replaced = self._id_by_token.get(UNK) if self._rules.unknown == "map" else None
        if replaced is None:
            raise TrackingError(f'the model does not know the word "{word}" and its vocabulary has no {UNK}')
        return replaced
