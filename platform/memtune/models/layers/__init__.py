"""Layers that two or more families share."""

from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.layers.memory_block import MemoryBlock
from memtune.models.layers.output import OutputLayer, SoftmaxOutput

__all__ = ["LSTMStack", "MemoryBlock", "OutputLayer", "SoftmaxOutput"]
