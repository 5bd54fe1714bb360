"""`make docs-site`: the site of the documentation, in build/site.

`sources` copies the pages and the C headers to where Sphinx reads them, and lists them by folder.
No list of pages is kept anywhere. `comments` turns comments and docstrings, which are plain text,
into reStructuredText. `conf` is Sphinx's configuration, and `__main__` runs all of it. The Python
is the Python of build/docs-venv, which has no Vicinal.
"""
