"""`vicinal study list`: the studies that come with Vicinal, and what of each can be run here.

It loads neither typer nor what studies are computed with.
"""

import json
import sys
from typing import Annotated

from vicinal.base.plain_call import Option

HOSTS = "A host for studies of several, this one as localhost; repeat it for each."


def list_(
    as_json: Annotated[bool, Option("Print JSON.", name="--json")] = False,
    host: Annotated[list[str] | None, Option(HOSTS, metavar="HOST")] = None,
) -> None:
    """List the studies that come with Vicinal, and how much of each this machine can give.

    Whole; adapted, with something smaller or in the place of something else; in part, where
    something is missing with nothing in its place; or not here. `show` says what and why.
    Nodes that a study left which was killed are said, too.
    """
    from vicinal.labs.study.file.adapt import adapt, fit_of
    from vicinal.labs.study.file.machine import examine_machine
    from vicinal.labs.study.file.shipped import list_studies

    machine = examine_machine(host or ())
    studies = [(each, fit_of(adapt(each, machine))) for each in list_studies()]
    if not as_json:
        from vicinal.cluster.owners import left_behind
        from vicinal.labs.study_commands.showing import show_list

        show_list(studies)
        for each in left_behind():
            sys.stdout.write(f"Note: {each}\n")
        return
    names = ("name", "title", "question", "source")
    listed = [
        {name: getattr(each, name) for name in names} | {"here": fit.value} for each, fit in studies
    ]
    sys.stdout.write(f"{json.dumps(listed, indent=1, ensure_ascii=False)}\n")
