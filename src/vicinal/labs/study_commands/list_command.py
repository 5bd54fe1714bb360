"""`vicinal study list`: the shipped studies, and how much of each this machine can run.

The module loads neither typer nor the numerical libraries of studies.
"""

import json
import sys
from typing import Annotated

from vicinal.base.plain_call import Option

HOSTS = "A host for studies of several hosts; localhost is this one. Can be repeated."


def list_(
    as_json: Annotated[bool, Option("Print JSON.", name="--json")] = False,
    host: Annotated[list[str] | None, Option(HOSTS, metavar="HOST")] = None,
) -> None:
    """List the studies that come with Vicinal, and how much of each this machine can run.

    A study runs whole; adapted, with something smaller or with a stand-in; in part, if something is
    missing and has no stand-in; or not here. `show` names the adaptations and the reasons. The
    command also names nodes that a killed study left behind.
    """
    from vicinal.labs.study.file.adapt import adapt, fit_of
    from vicinal.labs.study.file.host_facts import examine_host
    from vicinal.labs.study.file.shipped import list_studies

    facts = examine_host(host or ())
    studies = [(each, fit_of(adapt(each, facts))) for each in list_studies()]
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
