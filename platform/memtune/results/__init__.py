"""What trained models and studies say: ranking, verdicts, promotion, comparison, question answering."""
