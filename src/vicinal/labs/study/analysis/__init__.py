"""What a result says: cells, comparisons with tests, and published figures beside them."""
