"""Processes in a node that one launch started: a variable of theirs is its mark."""

CLEAR = """
for process in /proc/[0-9]*; do
    grep -q "$1" "$process/environ" 2>/dev/null && kill -9 "${process#/proc/}" 2>/dev/null
done
"""
"""Shell that kills all that have its first argument, VARIABLE=VALUE, among their variables.

A process of another user has variables that we may not read, and is not ours.
"""
