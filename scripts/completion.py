"""Print the script by which a shell completes the command `vicinal`: bash, fish or zsh."""

import sys

from typer.completion import get_completion_script

from vicinal.command_app import COMPLETE

shell = sys.argv[1]
print(get_completion_script(prog_name="vicinal", complete_var=COMPLETE, shell=shell))
if shell == "zsh":  # zsh loads the file at the first completion, which must also have an answer
    print('_vicinal_completion "$@"')
