"""Protocols: how text becomes batches and which predictions count.

A perplexity has a meaning only together with its protocol, so a protocol is a value and part of every result.
`sentence` and `stream` predict every token of a split (words, `<unk>` and the `<eos>` of each sentence)
exactly once, in an epoch of training and in an evaluation, and no evaluation depends on the batch size.
`tree` predicts words from their ancestors in dependency trees.
"""

from typing import Annotated

from pydantic import Field

from memtune.corpora.batching.batches import Batch, Plan
from memtune.corpora.batching.sentence_protocol import SentenceProtocol
from memtune.corpora.batching.stream_protocol import StreamProtocol
from memtune.corpora.batching.tree_protocol import TreeProtocol

__all__ = ["Batch", "Plan", "Protocol", "SentenceProtocol", "StreamProtocol", "TextProtocol", "TreeProtocol"]

TextProtocol = SentenceProtocol | StreamProtocol
"""A protocol that reads a text in its order."""
Protocol = Annotated[TextProtocol | TreeProtocol, Field(discriminator="kind")]
"""Any protocol; the key `kind` selects it."""
