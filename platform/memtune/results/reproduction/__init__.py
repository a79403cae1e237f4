"""The tables of papers: published values as data, our rows trained under the paper's protocol beside them."""
