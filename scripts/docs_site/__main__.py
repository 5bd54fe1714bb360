"""`make docs-site`: build build/site. A warning of Sphinx, such as a broken link, is an error."""

import os
import subprocess
import sys
from pathlib import Path

from docs_site import sources

TREE = Path(__file__).resolve().parents[2]
STAGED = TREE / "build/site-source"
SITE = TREE / "build/site"


def main() -> int:
    """Build the site. Returns Sphinx's exit status."""
    sources.stage(TREE, STAGED)
    here = os.environ | {"VICINAL_TREE": str(TREE), "VICINAL_SITE": str(STAGED)}
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet"]
    command += ["--fail-on-warning", "--conf-dir", str(TREE / "scripts/docs_site")]
    command += ["--doctree-dir", str(TREE / "build/site-doctrees"), str(STAGED), str(SITE)]
    status = subprocess.run(command, env=here, check=False).returncode
    if status:
        sys.stderr.write(
            "docs-site: error: Sphinx warned, see above. Mend the pages that the warnings name\n"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
