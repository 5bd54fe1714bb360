"""Variables of jobs as files: for a shell, Open MPI, MPICH, and units of systemd."""

from vicinal.labs.tune.knobs.variables import UNSET
from vicinal.labs.tune.outputs.parts import Parts


def environment_files(parts: Parts) -> dict[str, str]:
    """The files by their names, each with its text.

    A variable that is to be unset is so in the shell's alone: the others only add.
    """
    given = {name: text for name, text in parts.variables.items() if text != UNSET}
    unset = [name for name, text in parts.variables.items() if text == UNSET]
    # No value has a character that any of these takes for something else: see parts.py.
    assigned = [f"{name}={text}" for name, text in given.items()]
    shell = [f"unset {name}" for name in unset] + [f"export {each}" for each in assigned]
    left = "".join(f"# {name} is to be unset: its library does as it likes\n" for name in unset)
    return {
        "environment.sh": "# For a shell: . ./environment.sh\n" + _lines(shell),
        "environment.conf": f"# For a unit of systemd: EnvironmentFile=\n{left}{_lines(assigned)}",
        "openmpi-mca-params.conf": "# For Open MPI: lines for ~/.openmpi/mca-params.conf\n"
        + left
        + (f"mca_base_env_list = {';'.join(assigned)}\n" if assigned else ""),
        # What programs take for arguments has no comments.
        "openmpi.arguments": _lines([f"-x {each}" for each in assigned]),
        "mpich.arguments": _lines([f"-genv {name} {text}" for name, text in given.items()]),
    }


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
