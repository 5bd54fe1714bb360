"""Whether messages went the way that an environment is named for: the region itself says so."""

from collections.abc import Collection
from pathlib import Path

from vicinal.mpi.environment import MessagePath
from vicinal.region import RegionState, inspect


class Witness:
    """Looks at a region before a launch and after it."""

    def __init__(self, region: Path | None) -> None:
        self._region = region
        state = self._state()
        self._before: Collection[int] = set() if state is None else _nonces(state)

    def trouble(self, path: MessagePath, ranks: int) -> str | None:
        """Why the launch is not what its environment says, as a phrase; None where it is."""
        state = self._state()
        came = set() if state is None else _nonces(state) - set(self._before)
        if path is not MessagePath.REGION:
            return (
                f"its ranks were in the region, though they are to use {path.value}"
                if came
                else None
            )
        if ranks > 1 and (state is None or not _talked(state, came)):
            return "nothing went through the region: the figures would not be what they are called"
        return None

    def _state(self) -> RegionState | None:
        return None if self._region is None else inspect(self._region, patience=0)


def _nonces(state: RegionState) -> set[int]:
    return {member.nonce for member in state.members if member.nonce}


def _talked(state: RegionState, came: set[int]) -> bool:
    """Whether there was a connection from one rank to another among the members that came."""
    fresh = {member.slot: member for member in state.members if member.nonce in came}
    for connection in state.connections:
        sender, receiver = fresh.get(connection.sender), fresh.get(connection.receiver)
        if (
            sender is not None
            and receiver is not None
            and sender.slot != receiver.slot
            and connection.receiver_epoch == receiver.epoch
        ):
            return True
    return False
