"""The privileged helper of `vicinal vf`: all code that runs as root is in this directory.

    requests    the permitted requests, and their form
    system      access to this host; the callers of the helper read the host by it, too
    changes     the operations, each recorded before it changes anything
    service     one request, from standard input to the answer

The helper runs as `python3 -I THIS-DIRECTORY`, as root or through sudo, and needs only the standard
library. docs/how-to/vfs.md says what to audit.
"""
