"""The kinds of things that clusters consist of, one resource a module: made, observed, removed.

In which order, and what is written down of them, is in ../plan. What a node or a virtual machine
needs to run is in ../nodes and ../vm.
"""
