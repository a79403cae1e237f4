"""Characters, bytes and subwords: customary counts, round trips, and what a corpus stores of them."""

import base64
import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from memtune.corpora import ImportOptions, TextFile, import_corpus, open_corpus, verify_corpus
from memtune.corpora.importing.token_stage import spell_sentence
from memtune.corpora.tokenisation import subwords
from memtune.corpora.tokenisation.corpus_text import make_tokeniser, show_tokens
from memtune.corpora.tokenisation.subwords import SubwordTokeniser, train_subwords
from memtune.corpora.tokenisation.tokeniser import CharacterTokeniser
from memtune.errors import ConfigurationError, CorpusError
from tests.unit.corpora.conftest import TRAIN, read_store_files

SENTENCES = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=9),
    max_size=6,
)
TEXT = ["the cat sees the dog", "the dog sleeps", "a cat sleeps", "the cats see dogs"] * 5


@pytest.fixture(scope="module", params=["characters", "bytes", "bpe", "unigram"])
def tokeniser(request):
    if request.param in ("bpe", "unigram"):
        return train_subwords(request.param, 300, TEXT)
    return CharacterTokeniser(request.param)


@given(words=SENTENCES)
@settings(max_examples=100, deadline=None)
def test_joining_the_tokens_of_a_sentence_gives_the_sentence(tokeniser, words):
    assert tokeniser.join(tokeniser.split(words)) == " ".join(words)


@given(words=SENTENCES)
@settings(max_examples=30, deadline=None)
def test_a_tokeniser_made_from_its_document_is_the_same(tokeniser, words):
    same = make_tokeniser(tokeniser.kind, tokeniser.document)
    assert same.split(words) == tokeniser.split(words)
    assert same.document == tokeniser.document


def test_a_blank_is_an_underscore_and_an_underscore_is_escaped():
    assert CharacterTokeniser("characters").split(["a_b", "é"]) == ["a", "\\_", "b", "_", "é"]
    assert CharacterTokeniser("bytes").split(["a_b", "é"]) == ["a", "\\_", "b", "_", "<0xC3>", "<0xA9>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_twice_gives_the_same_tokeniser(kind):
    assert train_subwords(kind, 300, TEXT).document == train_subwords(kind, 300, iter(TEXT)).document


@pytest.mark.parametrize(
    "text",
    [
        "word",
        "bpe",
        "bpe:",
        "BPE:300",
        "bpe:299",
        "bpe:9999999",
        "wordpiece:8000",
        "unigram:1e4",
        "tokenizer.txt",
    ],
)
def test_an_unknown_choice_of_tokens_is_refused(text):
    problem = r"tokens: .*(is none of words, char|the size must be from 300)"
    with pytest.raises(ConfigurationError, match=problem):
        ImportOptions(tokens=text)


def read_tokens(store, cache, split="test"):
    corpus = open_corpus("small", store, cache)
    return corpus.vocabulary.decode(corpus[split].read_tokens(0, corpus[split].token_count))


def test_characters_have_the_customary_counts(import_texts, store, cache):
    manifest = import_texts(test=" the cat \nté\n", tokens="characters").manifest
    assert read_tokens(store, cache) == [*"the_cat", "<eos>", "t", "<unk>", "<eos>"]
    summary = manifest.splits["test"]
    assert (summary.tokens, summary.sentences, summary.oov_tokens) == (11, 2, 1)
    assert (summary.words, summary.bytes) == (3, 12)
    assert verify_corpus("small", store) == []


def test_characters_without_unknown_ones_need_no_token_for_them(import_texts, store, cache):
    import_texts(tokens="characters")
    assert set(open_corpus("small", store, cache).vocabulary.tokens) == {"<eos>", "_", *"thecatsdoglp"}


@pytest.mark.parametrize("tokens", ["characters", "bytes", "bpe:300", "unigram:300"])
def test_a_corpus_of_other_tokens_has_its_text(import_texts, store, cache, tokens):
    manifest = import_texts(tokens=tokens).manifest
    corpus = open_corpus("small", store, cache)
    assert corpus.tokeniser_document is not None
    tokeniser = make_tokeniser(manifest.tokeniser.kind, corpus.tokeniser_document)
    sentences = " ".join(read_tokens(store, cache, "valid")).split(" <eos>")
    joined = [tokeniser.join(sentence.split()) for sentence in sentences[:-1]]
    assert joined == ["the cat sleeps", "a dog sees a cat"]
    assert verify_corpus("small", store) == []


def test_the_size_of_trained_subwords_is_that_of_the_vocabulary(import_texts, store, cache):
    trained = train_subwords("bpe", 300, TRAIN.splitlines())
    assert import_texts(tokens="bpe:300").manifest.vocabulary.size == 1 + len(trained.tokens)
    assert open_corpus("small", store, cache).manifest.splits["valid"].oov_tokens == 0


def test_subwords_are_shown_as_their_text_and_parts_of_a_character_as_bytes(tmp_path, store, cache):
    (tmp_path / "text").write_text("模型 the 模型 the\n" * 9)
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(tmp_path / "text"))
    import_corpus("any", sources, store, ImportOptions(tokens="bpe:300"))
    corpus = open_corpus("any", store, cache)
    shown = show_tokens(corpus.vocabulary.tokens, corpus.tokeniser_document)
    assert {"<eos>", "_模型", "_the", "<0xE6>"} <= {*shown}
    assert len({*shown}) == len(shown)


def test_the_tokeniser_is_part_of_the_digest(import_texts):
    digests = {
        tokens: import_texts(tokens=tokens, name=re.sub(r"\W", "-", tokens)).manifest.digest
        for tokens in ("words", "characters", "bytes", "bpe:300", "unigram:300")
    }
    assert len(set(digests.values())) == len(digests)


def test_an_altered_tokeniser_is_found(import_texts, store, cache):
    manifest = import_texts(tokens="bpe:300").manifest
    path = store.local_path / "small" / manifest.tokeniser.path
    path.write_bytes(path.read_bytes().replace(b"1.0", b"2.0"))
    assert any("tokeniser.json has another SHA-256" in problem for problem in verify_corpus("small", store))
    with pytest.raises(CorpusError, match=r"tokeniser\.json has another SHA-256"):
        open_corpus("small", store, cache)


def write_tokenizer(path, **parts):
    """A tokenizer.json as others make it: lower case, and an unknown token of its own."""
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sleeps": 3, "<eos>": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path.write_text(tokenizer.to_str())
    return path


def test_a_tokenizer_file_splits_the_text(import_texts, store, cache, tmp_path):
    path = write_tokenizer(tmp_path / "tokenizer.json")
    manifest = import_texts(test="THE cat barks\n", tokens=str(path)).manifest
    assert read_tokens(store, cache) == ["the", "cat", "<unk>", "<eos>"]
    assert manifest.options.tokens == str(path)
    assert verify_corpus("small", store) == []


@pytest.mark.parametrize("document", ["", "{}", "[]", '{"model": {"type": "BPE"}}', "\0", "[" * 9_000])
def test_a_file_that_is_no_tokeniser_is_refused_and_leaves_nothing(import_texts, store, tmp_path, document):
    (tmp_path / "tokenizer.json").write_text(document)
    with pytest.raises(CorpusError):
        import_texts(tokens=str(tmp_path / "tokenizer.json"))
    assert not store.local_path.exists() or read_store_files(store.local_path) == {}


def edit_document(**fields):
    """The tokenizer.json of a byte-pair model with other fields in its "model"."""
    document = json.loads(train_subwords("bpe", 300, TEXT).document)
    document["model"].update(fields)
    return json.dumps(document)


@pytest.mark.parametrize("field", [{"dropout": 0.5}, {"dropout": 1.0}, {"alpha": 0.1}, {"nbest_size": 64}])
def test_a_tokeniser_that_splits_at_random_is_refused(import_texts, tmp_path, field):
    path = tmp_path / "tokenizer.json"
    path.write_text(edit_document(**field))
    name, value = next(iter(field.items()))
    with pytest.raises(
        CorpusError, match=rf'{path}: .*: {name} = {value} .*; set "{name}" of its "model" to'
    ):
        import_texts(tokens=str(path))


def test_a_dropout_of_zero_and_a_token_of_that_name_are_accepted():
    words = {"[UNK]": 0, "dropout": 1, "type": 2}
    tokeniser = SubwordTokeniser(Tokenizer(models.WordLevel(words, unk_token="[UNK]")).to_str())
    assert tokeniser.split(["dropout"]) == ["dropout"]
    assert SubwordTokeniser(edit_document(dropout=0.0)).split(["the", "cat"])


def write_expanding_document(normaliser, unknown="[UNK]"):
    tokenizer = Tokenizer(models.WordLevel({unknown: 0}, unk_token=unknown))
    tokenizer.normalizer = normaliser
    return tokenizer.to_str()


TABLE = base64.b64encode(bytes(4) + b"x" * 80 * 18 + b"\0").decode()


@pytest.mark.parametrize(
    ("document", "characters"),
    [
        (write_expanding_document(normalizers.Sequence([normalizers.Replace("a", "a" * 9)] * 2)), 81),
        (write_expanding_document(normalizers.Prepend("a" * 2_000_000)), 2_000_001),
        (write_expanding_document(None, unknown="a" * 70), 70),
    ],
)
def test_a_tokeniser_that_would_make_a_text_many_times_longer_is_refused(document, characters):
    with pytest.raises(CorpusError, match=f"up to {characters:,} characters of one, more than 64; shorten"):
        SubwordTokeniser(document)


def test_a_table_that_would_make_a_text_many_times_longer_is_refused():
    document = json.loads(write_expanding_document(None))
    document["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": TABLE}
    with pytest.raises(CorpusError, match="up to 80 characters of one, more than 64; shorten"):
        SubwordTokeniser(json.dumps(document))


def test_a_text_that_a_tokeniser_may_make_too_long_is_refused():
    tokeniser = SubwordTokeniser(write_expanding_document(normalizers.Prepend("a" * 63)))
    assert tokeniser.split(["b" * 1000]) == ["<unk>"]
    with pytest.raises(CorpusError, match=r"may make 12,800,000 characters of a text of 200,000, more than"):
        tokeniser.split(["b" * 200_000])


def test_a_tokeniser_with_a_token_of_thousands_of_characters_is_refused():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a" * 5000: 1}, unk_token="[UNK]"))
    with pytest.raises(CorpusError, match="a token of 5,000 characters, more than 4,096"):
        SubwordTokeniser(tokenizer.to_str())


def test_a_post_processor_does_not_repeat_a_text():
    document = json.loads(write_expanding_document(None))
    piece = {"Sequence": {"id": "A", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece] * 5,
        "pair": [piece, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {},
    }
    assert SubwordTokeniser(json.dumps(document)).split(["word"]) == ["<unk>"]


def test_a_model_that_takes_cubic_time_is_stopped(monkeypatch):
    """WordPiece looks for the longest token at each letter: 1 s for 3,000, with a limit of 0.15 s."""
    monkeypatch.setattr("memtune.corpora.tokenisation.subwords._BASE_CPU_SECONDS", 0.0)
    word_piece = models.WordPiece({"?": 0, "a": 1, "##a": 2}, unk_token="?", max_input_chars_per_word=10**9)
    tokeniser = SubwordTokeniser(Tokenizer(word_piece).to_str())
    with pytest.raises(CorpusError, match=r"processor time for 3,000 characters"):
        tokeniser.split(["a" * 3000])


def test_trained_subwords_of_a_very_long_word_are_shorter_than_the_limit():
    tokeniser = train_subwords("bpe", 300, ["x" * 20_000])
    assert max(map(len, tokeniser.tokens)) <= 4096
    assert tokeniser.join(tokeniser.split(["x" * 20_000])) == "x" * 20_000


def test_a_tokeniser_with_a_huge_token_id_is_refused():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 40_000_000}, unk_token="[UNK]"))
    with pytest.raises(CorpusError, match="has the token id 40,000,000, above 4,194,304"):
        SubwordTokeniser(tokenizer.to_str())


def test_limits_of_the_vocabulary_are_refused_beside_a_tokeniser(import_texts):
    with pytest.raises(CorpusError, match=r"--tokens bpe:300 determines the vocabulary; leave --min-count"):
        import_texts(tokens="bpe:300", min_count=2)


def test_annotations_stay_with_words(tmp_path, store, cache):
    path = tmp_path / "pairs.tsv"
    path.write_text("a cat\tit sleeps\t1\n")
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(path, "snli-tsv"))
    with pytest.raises(CorpusError, match="annotations and vectors belong to words"):
        import_corpus("pairs", sources, store, ImportOptions(tokens="characters"), cache=cache)


def test_spelling_is_changed_before_words_are_split(import_texts, store, cache):
    import_texts(test="THE c\u200bat\n", tokens="characters", lower_case=True, normalise="NFC")
    assert read_tokens(store, cache) == [*"the_cat", "<eos>"]


@pytest.mark.parametrize(
    ("word", "form", "spelled"),
    [
        ("e\u0301", "NFC", "é"),
        ("\ufb01n", "NFKC", "fin"),
        ("a\u200bb\u00adc", "NFC", "abc"),
        ("\u200b", "NFC", "\u200b"),
        ("\u00a8", "NFKC", "\u00a8"),
    ],
)
def test_a_normal_form_leaves_words_words(word, form, spelled):
    assert spell_sentence([word], ImportOptions(normalise=form)) == [spelled]


RAW = "a  b\n\nc_d\té\n"


@pytest.mark.parametrize("tokens", ["characters", "bytes"])
def test_raw_text_keeps_every_character(import_texts, store, cache, tokens):
    manifest = import_texts(RAW, RAW, RAW, kind="raw", tokens=tokens).manifest
    end = ["é"] if tokens == "characters" else ["<0xC3>", "<0xA9>"]
    tab = "\t" if tokens == "characters" else "<0x09>"
    expected = ["a", "_", "_", "b", "<eos>", "<eos>", "c", "\\_", "d", tab, *end, "<eos>"]
    assert read_tokens(store, cache) == expected
    assert (manifest.splits["test"].words, manifest.splits["test"].bytes) == (4, len(RAW.encode()))
    assert verify_corpus("small", store) == []


def test_one_huge_line_is_read(import_texts, store, cache, monkeypatch):
    monkeypatch.setattr("memtune.corpora.formats.plain_texts._MAX_LINE_TOKENS", 1 << 22)
    line = "anarchism originated as " * 400_000
    manifest = import_texts(line, line[:1000], line[:1000], kind="raw", tokens="characters").manifest
    assert manifest.splits["train"].tokens == len(line) + 3
    assert manifest.splits["test"].tokens == 1001
    assert manifest.vocabulary.size == 1 + len(set(line))


@pytest.mark.parametrize("tokens", ["words", "bpe:300"])
def test_raw_text_is_refused_without_characters_or_bytes(import_texts, tokens):
    with pytest.raises(CorpusError, match="format raw needs --tokens characters or --tokens bytes"):
        import_texts(kind="raw", tokens=tokens)


def test_raw_text_is_refused_with_another_spelling(import_texts):
    with pytest.raises(CorpusError, match="keeps every character; leave --lower-case, --unescape and --norm"):
        import_texts(kind="raw", tokens="characters", lower_case=True)


def test_a_raw_text_with_a_nul_is_read_as_bytes_only(import_texts):
    with pytest.raises(CorpusError, match=r"train.* a NUL, so the data are binary"):
        import_texts("a\0b\n", kind="raw", tokens="characters")


def test_a_subword_tokeniser_hides_padding_and_special_tokens():
    document = json.loads(train_subwords("bpe", 300, TEXT).document)
    document["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    words = ["the", "cat", "sleeps", "here"]
    cut = SubwordTokeniser(json.dumps(document))
    assert cut.join(cut.split(words)) == " ".join(words)


def write_splitting_document(expression):
    """The tokenizer.json of a model of two characters that splits texts by a regular expression."""
    tokenizer = Tokenizer(models.BPE(vocab={"?": 0, "a": 1, "b": 2}, merges=[], unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(expression), "isolated")
    return tokenizer.to_str()


def test_a_regular_expression_that_takes_quadratic_time_is_stopped(monkeypatch):
    """At each of n letters it reads all that follow: 8 s or more for 60,000."""
    monkeypatch.setattr(subwords, "_BASE_CPU_SECONDS", subwords._BASE_CPU_SECONDS / 8)
    tokeniser = SubwordTokeniser(write_splitting_document("a*$"))
    start = time.process_time()
    with pytest.raises(CorpusError, match=r"processor time for 60,001 characters; simplify the regular"):
        tokeniser.split(["a" * 60_000 + "b"])
    # The limit is 3.5 s.
    assert time.process_time() - start < 6


def test_a_regular_expression_splits_long_texts_that_it_reads_in_linear_time():
    tokeniser = SubwordTokeniser(write_splitting_document(r" ?\p{L}+|\s+(?!\S)|\s+"))
    assert tokeniser.split(["a" * 100, "b" * 200_000]).count("b") == 200_000


def test_a_regular_expression_with_exponential_time_is_refused():
    tokeniser = SubwordTokeniser(write_splitting_document("(a+)+$"))
    with pytest.raises(CorpusError, match=r"cannot split this text: .*retry-limit"):
        tokeniser.split(["a" * 300 + "b"])
