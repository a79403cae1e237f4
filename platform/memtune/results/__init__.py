"""What trained models and studies say: ranking, verdicts, registration, comparison, question answering."""
