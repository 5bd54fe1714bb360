"""What samples say: cells in a few figures, comparisons with tests, the published beside them."""
