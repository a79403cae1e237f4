"""What a report shows of a study or a corpus, as typed values: answer, leaderboard, provenance."""
