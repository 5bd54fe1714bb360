"""The kinds of things that clusters consist of."""
