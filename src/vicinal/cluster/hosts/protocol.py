"""What a command and the agents of hosts say to each other: lines of JSON.

A request has `do`, one of Request. Until its answer comes, an agent says `step` and `say` for
people, and `alive` every few seconds, so that a host that is lost is noticed however long its work
takes; a command says HERE as often, for the same reason.
"""

from enum import StrEnum

MARK = "vicinal-cluster "
"""What the agents' lines begin with: a login may write there too."""

ALIVE_SECONDS = 5.0
SILENCE_SECONDS = 60.0
"""An agent that has heard nothing for so long takes the command for lost."""


class Request(StrEnum):
    """What a command can ask of a host."""

    HELLO = "hello"
    """Who it is; its version must be the command's."""
    PLAN = "plan"
    """What `up` would do with its share."""
    UP = "up"
    """Make its share, say `made`, and wait for KEEP: without it all is undone."""
    KEEP = "keep"
    UNDO = "undo"
    """Also while it is being made."""
    DOWN = "down"
    START = "start"
    STOP = "stop"
    STATE = "state"
    """What there is of its share."""
    ENTER = "enter"
    """Get into its machines for a job; their region must have room for so many ranks."""
    CHECK = "check"
    """Whether they still run."""
    TRAFFIC = "traffic"
    """What their region says of the job of a number."""
    MOVE = "move"
    """A step in the move of a machine to another host, or from it: move_steps.py."""
    SAVE = "save"
    """A step in saving all machines, or in letting them go on: save_steps.py."""
    HERE = "here"
    """Nothing: the command is there. It has no answer."""
