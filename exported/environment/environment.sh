# For a shell: . ./environment.sh
export VICINAL_PROGRESS=block
