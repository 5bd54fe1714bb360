"""Runs in a guest: the checks of `vicinal doctor`, which prints a line of JSON for each finding.

    python doctor_inside.py [CHECK]...

It does not use the command line, whose libraries take half a minute to load with TCG.
"""

import json
import sys

from vicinal.host.checks import CHECKS
from vicinal.host.system import Host

for check in (check for check in CHECKS if not sys.argv[1:] or check.name in sys.argv[1:]):
    for finding in check.examine(Host()):
        line = {"check": check.name, "status": finding.status.value, "text": finding.text}
        print(json.dumps({**line, "remedy": finding.remedy, "facts": dict(finding.facts)}))
