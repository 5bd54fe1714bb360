"""The privileged helper of `vicinal functions`: all that is done as root is in this directory.

    requests    what may be asked of it, and in which form
    system      this host, as the helper reads and changes it; those who ask it read it so, too
    changes     what is done, and written down before it is
    service     one request, from standard input to the answer

It is run as `python3 -I THIS-DIRECTORY`, by root or through sudo, and needs the standard library
alone. docs/how-to/virtual-functions.md says what to audit.
"""
