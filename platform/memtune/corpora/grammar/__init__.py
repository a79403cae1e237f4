"""The embedded corpus: a probabilistic grammar of English, its sentences, and gold data for every task."""

from memtune.corpora.grammar.derivation import (
    LONGEST_SENTENCE_WORDS,
    SHORTEST_SENTENCE_WORDS,
    entropy,
    mean_tokens,
)
from memtune.corpora.grammar.embedded_corpus import (
    SPLIT_SIZES,
    Sentence,
    VerbAgreement,
    generate_sentences,
    ideal_perplexity,
    import_grammar,
    log_probability,
    next_word_probabilities,
    stream_sentences,
)
from memtune.corpora.grammar.lexicon import WORDS

__all__ = [
    "LONGEST_SENTENCE_WORDS",
    "SHORTEST_SENTENCE_WORDS",
    "SPLIT_SIZES",
    "WORDS",
    "Sentence",
    "VerbAgreement",
    "entropy",
    "generate_sentences",
    "ideal_perplexity",
    "import_grammar",
    "log_probability",
    "mean_tokens",
    "next_word_probabilities",
    "stream_sentences",
]
