"""How a registered model reads and writes text: its words, their case, unknown words, and their tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memtune.corpora import UNK, Corpus, ImportOptions, make_tokeniser, spell_sentence
from memtune.corpora.formats.prose_texts import ProseOptions, finish_sentence, tokenise_sentence
from memtune.corpora.importing.token_stage import RAW_FORMAT
from memtune.errors import TrackingError
from memtune.values import Value

MAX_CAPITALISED_SHARE = 0.02
"""The largest share of tokens with a capital letter in a vocabulary of lower-cased text: Penn Treebank's has
one, the "N" that stands for numbers."""
PROSE_FORMATS = ("gutenberg", "prose")
"""Formats of which memtune's own tokeniser makes words."""


class TextRules(Value):
    """What the corpus's import did to words, as far as it applies to a text that is given to a model.

    `tokeniser`: words are separated by blanks, or split from prose with its signs, or a "raw" text is not
    split into words. `split_clitics` splits words as the Penn Treebank: `do n't`. `final` drops a sign that
    ends a sentence. `unescape` replaces the escapes of the Moses tokeniser. `casing`: a word is looked
    up in lower case ("lower"), as written ("keep"), or as written and then in lower case, for a corpus
    without capital letters ("fold"). With `unknown = "refuse"` a word that the vocabulary lacks is an error,
    with "map" it is read as `<unk>`. `normalise` is the Unicode normal form of words. `tokens` says what
    words are split into; `tokeniser_document` makes the tokeniser of subwords.
    """

    tokeniser: Literal["blanks", "prose", "raw"] = "blanks"
    split_clitics: bool = False
    final: Literal["keep", "drop"] = "keep"
    unescape: bool = False
    casing: Literal["keep", "lower", "fold"] = "keep"
    unknown: Literal["map", "refuse"] = "map"
    normalise: Literal["NFC", "NFKC"] | None = None
    tokens: Literal["words", "characters", "bytes", "subwords"] = "words"
    tokeniser_document: str | None = None


@dataclass(frozen=True)
class ReadText:
    """A text as token ids, without `<eos>`, and the words, or other tokens, that the vocabulary lacks.

    `words` are those of the text before they became other tokens.
    """

    ids: list[int]
    unknown_words: list[str]
    words: Sequence[str] = ()


def find_text_rules(corpus: Corpus) -> TextRules:
    """The rules of a corpus: those of its import, and of its vocabulary where it came in lower case."""
    manifest = corpus.manifest
    source = manifest.sources.get("train") or next(iter(manifest.sources.values()))
    is_prose = source.format in PROSE_FORMATS or source.options.get("content") == "prose"
    return TextRules(
        tokeniser="raw" if source.format == RAW_FORMAT else "prose" if is_prose else "blanks",
        split_clitics=source.options.get("clitics") == "split",
        final="drop" if source.options.get("final") == "drop" else "keep",
        unescape=manifest.options.unescape,
        casing=_find_casing(corpus),
        unknown="map" if UNK in corpus.vocabulary.tokens else "refuse",
        normalise=manifest.options.normalise,
        tokens=manifest.tokeniser.kind if manifest.tokeniser else "words",
        tokeniser_document=corpus.tokeniser_document,
    )


def _find_casing(corpus: Corpus) -> Literal["keep", "lower", "fold"]:
    """The casing of a corpus; one that came without capital letters looks words up in lower case too."""
    if corpus.manifest.options.lower_case:
        return "lower"
    if corpus.manifest.tokeniser and corpus.manifest.tokeniser.kind == "subwords":
        return "keep"  # bytes of any case are known
    tokens = [token for token in corpus.vocabulary.tokens if not token.startswith("<")]
    capitalised = sum(token != token.lower() for token in tokens)
    # One capital among 50 characters is the "N" of Penn Treebank too.
    return "fold" if capitalised <= max(1, MAX_CAPITALISED_SHARE * len(tokens)) else "keep"


class TextReader:
    """Makes token ids of texts, and texts of tokens, by a model's rules and vocabulary."""

    def __init__(self, rules: TextRules, id_by_token: Mapping[str, int]) -> None:
        """Raises CorpusError for a tokeniser that this machine cannot make."""
        self._rules, self._id_by_token = rules, id_by_token
        self._spelling = ImportOptions(
            lower_case=rules.casing == "lower", unescape=rules.unescape, normalise=rules.normalise
        )
        document = rules.tokeniser_document or "{}"
        self._tokeniser = None if rules.tokens == "words" else make_tokeniser(rules.tokens, document)

    def read(self, text: str) -> ReadText:
        """The ids of a text's words, or other tokens.

        Raises TrackingError for an unknown one that cannot be replaced.
        """
        words, ids, unknown = self.split(text), list[int](), list[str]()
        replacement = self._id_by_token.get(UNK) if self._rules.unknown == "map" else None
        tokens = self._tokenise(words)
        for token, shown in zip(tokens, words if self._tokeniser is None else tokens, strict=True):
            found = self._find_id(token)
            if found is None:
                unknown.append(shown)
                found = replacement
            if found is None:
                raise TrackingError(
                    f'the model does not know "{shown}" and its vocabulary has no {UNK}; leave it out, or '
                    f"use a model of a corpus that is imported with {UNK}: --unknown map for words, "
                    "--min-count 2 for characters"
                )
            ids.append(found)
        return ReadText(ids, unknown, words)

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens: words with blanks between them, or what the tokeniser joins."""
        return " ".join(tokens) if self._tokeniser is None else self._tokeniser.join(tokens)

    def _tokenise(self, words: Sequence[str]) -> Sequence[str]:
        """The tokens of words, spelled as the import did; a word is one where the vocabulary has words."""
        if self._spelling != ImportOptions():
            # Arrow holds no lone surrogates, which no vocabulary has.
            valid = [word.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for word in words]
            words = spell_sentence(valid, self._spelling)
        return words if self._tokeniser is None else self._tokeniser.split(words)

    def split(self, text: str) -> list[str]:
        """The words of a text; its case is kept."""
        if self._rules.tokeniser == "raw":
            return [text] if text else []
        clitics: Literal["keep", "split"] = "split" if self._rules.split_clitics else "keep"
        options = ProseOptions(final=self._rules.final, clitics=clitics)
        if self._rules.tokeniser == "prose":
            return tokenise_sentence(text, options)
        return finish_sentence(text.split(), options)

    def _find_id(self, token: str) -> int | None:
        # Words of corpora in lower case are spelled so before they are divided: the lower case of a token may
        # be another one, such as of the blank in "Ġthe".
        spellings = [token, token.lower()] if self._rules.casing == "fold" else [token]
        return next((self._id_by_token[each] for each in spellings if each in self._id_by_token), None)
