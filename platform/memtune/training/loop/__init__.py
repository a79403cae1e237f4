"""The steps between two reports: batches, update, random states, sums and progress."""
