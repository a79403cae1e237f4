"""The tables of papers: published values as data, next to our rows, trained under the paper's protocol."""
