"""Subwords by Hugging Face `tokenizers`: byte-pair encoding, unigram models, and tokenizer.json files.

A trained tokeniser works on the bytes of words, each with the blank before it: every text has tokens, none
is unknown, and joining gives the words back. Sennrich et al. (2016), "Neural Machine Translation of Rare
Words with Subword Units"; Kudo (2018), "Subword Regularization".
"""

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from typing_extensions import override

from memtune.corpora.store.vocabulary import EOS, UNK
from memtune.corpora.text_blocks import group_texts
from memtune.corpora.tokenisation.tokeniser import Tokeniser
from memtune.errors import CorpusError

_SCORE_DIGITS = 6
_STEP = 0.0001
_MAX_TOKEN_ID = 2**22
_MAX_TOKEN_CHARACTERS = 4096
_MAX_GROWTH = 64
"""Characters that a tokeniser may make of one character of a text."""
_MAX_CALL_CHARACTERS = 2**23
"""Characters after replacements that are encoded at once: a token takes up to about 250 bytes meanwhile."""
_UNICODE_GROWTH = 18
"""Characters that Unicode's normal forms make of one at most; tables of SentencePiece hold these forms."""
_RANDOM_FIELDS = ("dropout", "alpha", "nbest_size")
"""Fields of a model that make BPE leave out merges, and Unigram sample a segmentation."""
_BASE_CPU_SECONDS = 4.0
_MIN_CHARACTERS_PER_CPU_SECOND = 20_000
"""A tenth of what slow tokenisers reach. A regular expression may take quadratic time, for hours."""
_POLL_SECONDS = 0.05


class SubwordTokeniser(Tokeniser):
    """The tokeniser of a tokenizer.json. Its token for unknown words, if any, is `<unk>`."""

    kind = "subwords"

    def __init__(self, document: str) -> None:
        """Raises CorpusError for a document that `tokenizers` cannot read."""
        self.document = document
        with _translate_errors("is not a tokenizer.json that this version of tokenizers reads"):
            self._tokenizer = Tokenizer.from_str(document)
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
            # It adds special tokens, which are left out here, and may repeat the text any number of times.
            self._tokenizer.post_processor = None
        objects: list[dict[str, Any]] = []

        def collect(each: dict[str, Any]) -> dict[str, Any]:
            objects.append(each)
            return each

        content = json.loads(document, object_hook=collect)
        for name in _RANDOM_FIELDS:
            if value := content["model"].get(name):
                raise CorpusError(
                    f"the tokeniser is random: {name} = {value} gives equal texts other tokens each time; "
                    f'set "{name}" of its "model" to null'
                )
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        with _translate_errors("has parts that cannot be checked"):
            self._growth = _measure_growth(objects, unknown or "")
        by_id = {number: token for token, number in self._tokenizer.get_vocab(True).items()}
        if not by_id:
            raise CorpusError("the tokeniser has no tokens")
        if max(by_id) > _MAX_TOKEN_ID:
            raise CorpusError(f"the tokeniser has the token id {max(by_id):,}, above {_MAX_TOKEN_ID:,}")
        if (longest := max(map(len, by_id.values()))) > _MAX_TOKEN_CHARACTERS:
            raise CorpusError(
                f"the tokeniser has a token of {longest:,} characters, more than {_MAX_TOKEN_CHARACTERS:,}; "
                "remove it from the vocabulary"
            )
        self._names = [_name(by_id.get(number, ""), unknown) for number in range(max(by_id) + 1)]
        self._ids = {name: number for number, name in enumerate(self._names)}

    @property
    @override
    def tokens(self) -> list[str]:
        """The tokens by the tokeniser's own ids."""
        return self._names

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokeniser's own ids of each text. Raises CorpusError."""
        characters = max(map(len, texts), default=0)
        if characters * self._growth > _MAX_CALL_CHARACTERS:
            raise CorpusError(
                f"the tokeniser may make {characters * self._growth:,} characters of a text of "
                f"{characters:,}, more than {_MAX_CALL_CHARACTERS:,}; split long lines"
            )
        encoded: list[list[int]] = []
        for group in group_texts(texts, _MAX_CALL_CHARACTERS // self._growth):
            encode = partial(self._tokenizer.encode_batch_fast, group, add_special_tokens=False)
            encoded += (each.ids for each in _run_bounded(encode, sum(map(len, group))))
        return encoded

    @override
    def split(self, words: Sequence[str]) -> list[str]:
        """The subwords of a sentence of words."""
        (subwords,) = self.split_words([" ".join(words)])
        return subwords

    @override
    def split_words(self, words: Sequence[str]) -> Iterator[list[str]]:
        """The subwords of each word; a trained tokeniser puts the blank before it."""
        return ([self._names[number] for number in ids] for ids in self.encode_texts(words))

    def join(self, tokens: Sequence[str]) -> str:
        """The text of subwords, without a blank at its start."""
        known = [self._ids[token] for token in tokens if token in self._ids]
        with _translate_errors("cannot join tokens"):
            text = self._tokenizer.decode(known, skip_special_tokens=False)
        return str(text).removeprefix(" ")


def _measure_growth(objects: list[dict[str, Any]], unknown: str) -> int:
    """The characters that may become of one, by all objects of a document. CorpusError for more than 64."""
    growth = 1
    for node in objects:
        if node.get("type") == "Replace":
            growth *= max(1, len(str(node.get("content"))))
        elif node.get("type") == "Prepend":
            growth *= 1 + len(str(node.get("prepend")))
        elif node.get("type") == "Precompiled":
            # A table of SentencePiece: the size of a trie, the trie, and texts.
            data = base64.b64decode(str(node.get("precompiled_charsmap")))
            texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
            growth *= max(1, max(map(len, texts)) // _UNICODE_GROWTH)
    if max(growth, len(unknown)) > _MAX_GROWTH:
        raise CorpusError(
            f"the tokeniser's replacements make up to {max(growth, len(unknown)):,} characters of one, more "
            f"than {_MAX_GROWTH}; shorten the texts of Replace, Prepend and unk_token in it"
        )
    return growth


def _run_bounded(encode: Callable[[], list[Any]], characters: int) -> list[Any]:
    """The result of `encode`; CorpusError when it fails, or takes too much time for so many characters.

    `tokenizers` limits the steps of one match of a regular expression, but not of all matches.

    Native code cannot be interrupted. It runs in a daemon thread, which ends with the process.
    """
    result: Future[list[Any]] = Future()

    def run() -> None:
        try:
            result.set_result(encode())
        except BaseException as error:  # a panic in Rust is not an Exception
            result.set_exception(error)

    limit = _BASE_CPU_SECONDS + characters / _MIN_CHARACTERS_PER_CPU_SECOND
    start = time.process_time()  # processor time, which a busy machine does not change
    Thread(target=run, daemon=True).start()
    while wait([result], _POLL_SECONDS).not_done:
        if time.process_time() - start > limit:
            raise CorpusError(
                f"the tokeniser takes more than {limit:.0f} s of processor time for {characters:,} "
                "characters; simplify the regular expression in its pre_tokenizer or normalizer, or split "
                "long lines"
            )
    with _translate_errors("cannot split this text"):
        return result.result()


def train_subwords(kind: Literal["bpe", "unigram"], size: int, texts: Iterable[str]) -> SubwordTokeniser:
    """Train a tokeniser with up to `size` tokens, 256 of them bytes; the same texts give the same one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model, new_trainer = (
        (models.BPE(), partial(trainers.BpeTrainer, max_token_length=_MAX_TOKEN_CHARACTERS))
        if kind == "bpe"
        else (models.Unigram(), trainers.UnigramTrainer)
    )
    trainer = new_trainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    with _translate_errors("cannot be trained on this text"):
        tokenizer.train_from_iterator(texts, trainer=trainer)
    document = tokenizer.to_str()
    return SubwordTokeniser(document if kind == "bpe" else _order_scores(document))


def _order_scores(document: str) -> str:
    """A unigram model whose scores do not depend on the order of a hash table (tokenizers 0.22 and 0.23).

    Bytes that training keeps for the alphabet only get scores that fall by 0.0001 in a random order there;
    here the order is that of the characters. Sums of logarithms differ in their last digits.
    """
    content = json.loads(document)
    scores = dict(content["model"]["vocab"])
    alphabet = sorted((token for token in scores if len(token) == 1), key=lambda token: -scores[token])
    start = len(alphabet) - 1
    while start and abs(scores[alphabet[start - 1]] - scores[alphabet[start]] - _STEP) < _STEP / 1000:
        start -= 1
    steps = [scores[token] for token in alphabet[start:]]
    scores.update(zip(sorted(alphabet[start:]), steps, strict=True))
    rounded = ((token, round(score, _SCORE_DIGITS)) for token, score in scores.items())
    content["model"]["vocab"] = sorted(rounded, key=lambda item: (-item[1], item[0]))
    return json.dumps(content, ensure_ascii=False)


def _name(token: str, unknown: str | None) -> str:
    """The token's name in a vocabulary, where `<eos>` and `<unk>` have a meaning of their own."""
    if token == unknown and unknown is not None:
        return UNK
    return f"\\{token}" if token in (EOS, UNK) else token


@contextmanager
def _translate_errors(problem: str) -> Iterator[None]:
    """Raises CorpusError for any error of `tokenizers`, whose panics in Rust are not Exceptions."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, CorpusError) or not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ):
            raise
        reason = " ".join(str(error).splitlines()[:1])[:200]
        raise CorpusError(f"the tokeniser {problem}: {reason}") from None
