"""Layers that two or more families share."""

from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.memories.memory_block import MemoryBlock
from memtune.models.outputs.output_layer import OutputLayer, SoftmaxOutput
