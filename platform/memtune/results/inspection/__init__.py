"""What trained models do with their memory, and the figures of the papers as values.

The other modules compute one figure each from a model of `inspected_model` and a text of `inspected_text`;
`memtune.reports.inspection` draws them. Import from the modules.
"""
