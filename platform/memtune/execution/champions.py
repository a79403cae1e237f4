"""placeholder"""
from dataclasses import dataclass
@dataclass
class Crowning:
    message: str
def crown(ready, recorder, outcomes): return None
def register(recorder, settings, corpus, identity, checkpoints): return None
