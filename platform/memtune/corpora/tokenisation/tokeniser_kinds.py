"""The tokeniser of each kind, from the document that a corpus or a model stores."""

from memtune.corpora.tokenisation.tokeniser import ByteTokeniser, CharacterTokeniser, Tokeniser, TokeniserKind
from memtune.errors import CorpusError


def make_tokeniser(kind: TokeniserKind, document: str) -> Tokeniser:
    """The tokeniser of a stored document. Raises CorpusError for one that `tokenizers` cannot read."""
    if kind == "characters":
        return CharacterTokeniser()
    if kind == "bytes":
        return ByteTokeniser()
    if kind == "subwords":
        # Imported here: only texts of subwords need `tokenizers`, and `import memtune` loads without it.
        from memtune.corpora.tokenisation.subwords import SubwordTokeniser

        return SubwordTokeniser(document)
    raise CorpusError(f'no tokeniser "{kind}"; update memtune')
