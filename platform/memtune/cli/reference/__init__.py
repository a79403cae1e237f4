"""`memtune schema`: the fields of the files that users write."""
