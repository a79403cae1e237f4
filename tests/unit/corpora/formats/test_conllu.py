"""CoNLL-U: lines that are words, valid trees, and the options for punctuation and subtypes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtune.corpora import TextFile, import_corpus, open_corpus
from memtune.corpora.formats.conllu import drop_punctuation
from memtune.errors import CorpusError
from tests.fuzz.time_limit import limit_time
from tests.unit.corpora.formats.conftest import read_sentences


def format_word(identifier, form, head, relation):
    return f"{identifier}\t{form}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_"


def format_sentence(*words):
    """A sentence of (form, head, relation), heads from 1."""
    return "\n".join(format_word(index + 1, *word) for index, word in enumerate(words)) + "\n\n"


def read_trees(corpus):
    labels = corpus.manifest.annotations["trees"].labels
    rows = corpus.annotations["trees"]["train"].to_pylist()
    return [(row["heads"], [labels[index] for index in row["relations"]]) for row in rows]


def test_ranges_and_empty_nodes_are_not_words(import_text):
    corpus = import_text(
        "conllu",
        "\n".join(
            [
                "# newdoc",
                format_word("1-2", "vámonos", "_", "_"),
                format_word("1", "vamos", 0, "root"),
                format_word("2", "nos", 1, "obj"),
                format_word("2.1", "ya", "_", "_"),
            ]
        ),
    )
    assert read_sentences(corpus) == ["vamos nos"]
    assert read_trees(corpus) == [([-1, 0], ["root", "obj"])]


def test_whitespace_within_a_form_becomes_an_underscore(import_text):
    assert read_sentences(
        import_text("conllu", format_sentence(("1 000", 2, "nummod"), ("km", 0, "root")))
    ) == ["1_000 km"]


PUNCTUATED = format_sentence(
    ("(", 2, "punct"), ("So", 4, "advmod:emph"), (",", 2, "punct"), ("go", 0, "root"), ("!", 4, "punct")
)


def test_punctuation_and_subtypes_are_kept_by_default(import_text):
    assert read_trees(import_text("conllu", PUNCTUATED)) == [
        ([1, 3, 1, -1, 3], ["punct", "advmod:emph", "punct", "root", "punct"])
    ]


def test_dropped_punctuation_leaves_no_gap(import_text):
    corpus = import_text("conllu", PUNCTUATED, punctuation="drop", subtypes="strip")
    assert read_sentences(corpus) == ["So go"]
    assert read_trees(corpus) == [([1, -1], ["advmod", "root"])]


def test_dependents_of_dropped_punctuation_get_its_nearest_kept_ancestor_as_head(import_text):
    text = format_sentence(("go", 0, "root"), ("-", 1, "punct"), ("-", 2, "punct"), ("now", 3, "advmod"))
    assert read_trees(import_text("conllu", text, punctuation="drop")) == [([-1, 0], ["root", "advmod"])]


def test_a_sentence_of_punctuation_keeps_its_root(import_text):
    corpus = import_text("conllu", format_sentence(("?", 0, "punct"), ("!", 1, "punct")), punctuation="drop")
    assert read_sentences(corpus) == ["?"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([("a", 0, "root"), ("b", 0, "root")], "line 2: a sentence with 2 roots"),
        ([("a", 2, "x"), ("b", 1, "x")], "line 1: a sentence with 0 roots"),
        ([("r", 0, "root"), ("a", 3, "x"), ("b", 4, "x"), ("c", 2, "x")], 'line 2: a cycle through "a"'),
        ([("a", 0, "root"), ("b", 2, "x")], 'line 2: a cycle through "b"'),
        ([("a", 0, "root"), ("b", 9, "x")], "line 2: head 9 in a sentence of 2 words"),
        ([("a", "_", "root")], 'line 1: the head "_" is not a whole number from 0'),
        ([("a", 0, "root"), (" ", 1, "x")], "line 2: a word without a form"),
    ],
    ids=["two roots", "no root", "cycle", "own head", "head outside", "no head", "no form"],
)
def test_an_invalid_tree_is_refused_with_its_line(import_text, words, message):
    with pytest.raises(CorpusError, match=message):
        import_text("conllu", format_sentence(*words))


def test_words_numbered_out_of_order_are_refused(import_text):
    with pytest.raises(CorpusError, match='line 2: word "3" where 2 should be'):
        import_text("conllu", f"{format_word(1, 'a', 0, 'root')}\n{format_word(3, 'b', 1, 'x')}\n")


@st.composite
def random_trees(draw):
    """Any tree, including those with crossing edges: words join a growing tree in random order."""
    size = draw(st.integers(1, 8))
    order = draw(st.permutations(range(size)))
    heads = [-1] * size
    for index, word in enumerate(order[1:], 1):
        heads[word] = order[draw(st.integers(0, index - 1))]
    relations = draw(st.lists(st.sampled_from(["a", "b:c", "punct"]), min_size=size, max_size=size))
    return heads, relations


@given(st.lists(random_trees(), min_size=1, max_size=4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tree_is_read_as_written(import_text, drawn):
    text = "".join(
        format_sentence(*((f"w{i}", head + 1, r) for i, (head, r) in enumerate(zip(*tree, strict=True))))
        for tree in drawn
    )
    assert read_trees(import_text("conllu", text)) == drawn


@given(random_trees())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tree_without_punctuation_keeps_the_ancestors_of_its_words(import_text, drawn):
    heads, relations = drawn
    words = [(f"w{i}", head + 1, r) for i, (head, r) in enumerate(zip(heads, relations, strict=True))]
    corpus = import_text("conllu", format_sentence(*words), punctuation="drop")
    forms = read_sentences(corpus)[0].split()
    ((new_heads, _),) = read_trees(corpus)
    assert forms == [
        f"w{i}" for i, (h, r) in enumerate(zip(heads, relations, strict=True)) if h < 0 or r != "punct"
    ]
    for position, form in enumerate(forms):
        ancestor = heads[int(form[1:])]
        while ancestor >= 0 and f"w{ancestor}" not in forms:
            ancestor = heads[ancestor]
        found = new_heads[position]
        assert (forms[found] if found >= 0 else None) == (f"w{ancestor}" if ancestor >= 0 else None)


def has_crossing_edges(heads):
    """Whether two edges cross; the edge of the root starts before the first word."""
    edges = [tuple(sorted(edge)) for edge in enumerate(heads)]
    return any(a < c < b < d for a, b in edges for c, d in edges)


def test_english_web_treebank_has_its_published_counts(corpora_folder, store, cache):
    folder = corpora_folder("ud")
    splits = {"train": "train", "valid": "dev"}
    sources = {
        split: TextFile(folder / f"en_ewt-ud-{file}.conllu", "conllu") for split, file in splits.items()
    }
    import_corpus("ewt", sources, store, cache=cache)
    corpus = open_corpus("ewt", store, cache)
    assert {name: split.sentence_count for name, split in corpus.splits.items()} == {
        "train": 12_544,
        "valid": 2_001,
    }
    heads = {split: table["heads"].to_pylist() for split, table in corpus.annotations["trees"].items()}
    assert {split: sum(map(has_crossing_edges, lists)) for split, lists in heads.items()} == {
        "train": 288,
        "valid": 31,
    }


def test_a_long_chain_of_punctuation_is_dropped_in_linear_time():
    signs, words = 50_000, 50_000
    heads = (-1, *range(signs), *[signs] * words)
    relations = ("root", *["punct"] * signs, *["dep"] * words)
    sentence = [str(place) for place in range(len(heads))]
    with limit_time():
        kept, (found, _) = drop_punctuation(sentence, (heads, relations))
    assert len(kept) == words + 1
    assert found == (-1, *[0] * words)


def test_sentences_whose_text_was_removed_are_left_out(import_text):
    removed = "1\t_\t_\tX\t_\t_\t0\troot\t_\t_\n\n"
    corpus = import_text("conllu", removed * 2 + removed.replace("1\t_", "1\tdogs", 1))
    assert read_sentences(corpus) == ["dogs"]
    assert list(corpus.manifest.sources["train"].skipped.values()) == [2]


@pytest.mark.parametrize(("count", "counted"), [(1, "1 left out: sentences"), (2, "2 sentences")])
def test_a_treebank_without_text_is_refused(import_text, count, counted):
    with pytest.raises(CorpusError, match=f"is empty: .*; {counted} of which each form is _: their"):
        import_text("conllu", "1\t_\t_\tX\t_\t_\t0\troot\t_\t_\n\n" * count)
