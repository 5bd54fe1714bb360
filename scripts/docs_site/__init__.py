"""`make docs-site`: the site of the documentation, in build/site.

`sources` copies the pages and the C headers to where Sphinx reads them, and lists them by folder:
no list of pages is kept anywhere. `comments` turns comments and docstrings, which are plain text,
into reStructuredText. `conf` is Sphinx's configuration. `__main__` joins them. All of it runs with
the Python of build/docs-venv, which has no Vicinal.
"""
