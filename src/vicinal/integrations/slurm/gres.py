"""GRES: the lines that tell Slurm about this host's SR-IOV VFs, and the check of these lines.

Slurm counts the VFs of each card; a card is a type of the GRES. Slurm needs no more: the
VFs of a job are chosen when the job begins.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from vicinal.host.vf.operations import Vfs
from vicinal.integrations.slurm.checks import Found
from vicinal.integrations.slurm.defaults import GRES
from vicinal.integrations.slurm.files import setting

_TYPE = re.compile(r"[A-Za-z][\w.-]*")
_COUNTED = re.compile(rf"(?:^|,){GRES}:([A-Za-z][\w.-]*):(\d+)")
_ANSWER_SECONDS = 30.0


def counted(vfs: Vfs | None = None) -> dict[str, int]:
    """The number of VFs of each card of this host, by the card's name for Slurm."""
    found = {}
    for card in (vfs or Vfs()).cards():
        devices = (port.device for port in card.ports)
        names = [name for name in (*card.interfaces, *devices) if _TYPE.fullmatch(name)]
        if card.vfs and names:
            found[names[0]] = len(card.vfs)
    return found


def gres_of(counts: Mapping[str, int]) -> str:
    """The value of Gres for a node's line in slurm.conf."""
    return ",".join(f"{GRES}:{card}:{count}" for card, count in counts.items())


def lines(node: str, counts: Mapping[str, int], slurm_conf: Path) -> Iterator[str]:
    """The lines that an administrator must write, with the files to write them to."""
    if not counts:
        yield f"{node} has no SR-IOV VFs: create some with `vicinal vf create CARD N`"
        return
    yield f"write into {slurm_conf.parent}/gres.conf, which is the same on every host:"
    for card, count in counts.items():
        yield f"    NodeName={node} Name={GRES} Type={card} Count={count}"
    yield f"write into {slurm_conf}:"
    yield f"    GresTypes={GRES}"
    yield f"and into its line of {node}:"
    yield f"    Gres={gres_of(counts)}"
    yield "then restart slurmctld, and after it slurmd"


def check(node: str, counts: Mapping[str, int], slurm_conf: Path) -> Iterator[Found]:
    """Check that slurm.conf and slurmctld know the GRES and the VFs of `node`."""
    types = (setting(slurm_conf, "GresTypes") or "").split(",")
    known = "has" if GRES in types else "does not have"
    remedy = f"write GresTypes={GRES} into it, and restart slurmctld and slurmd"
    yield Found(GRES in types, f"GresTypes in {slurm_conf} {known} {GRES}", remedy)
    shown = _shown(node, slurm_conf)
    if shown is None:
        yield Found(
            not counts,
            f"slurmctld {'need not' if not counts else 'does not'} know the node {node}",
            f"check that `scontrol show node {node}` answers, or name the node with --node",
        )
        return
    told = {card: int(count) for card, count in _COUNTED.findall(shown.get("Gres", ""))}
    yield Found(
        told == counts,
        f"{node} has {gres_of(counts) or 'no vfs'}, and Slurm knows of {gres_of(told) or 'none'}",
        f"write the lines of `vicinal slurm install --vfs` into {slurm_conf} and gres.conf; "
        "create missing VFs with `vicinal vf create CARD N`",
    )
    reason = shown.get("Reason", "")
    if f"gres/{GRES}" in reason:
        yield Found(
            False,
            f"Slurm does not use {node}: {reason}",
            "correct gres.conf there, restart slurmd, and `scontrol update nodename="
            f"{node} state=resume`",
        )


def _shown(node: str, slurm_conf: Path) -> dict[str, str] | None:
    """What Slurm reports about a node; None if Slurm does not know the node, or does not answer."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "node", node],
            env=os.environ | {"SLURM_CONF": str(slurm_conf)},
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0 or "NodeName=" not in done.stdout:
        return None
    return dict(re.findall(r"^\s*(Gres|Reason)=(.*)$", done.stdout, re.MULTILINE))
