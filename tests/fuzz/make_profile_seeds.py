"""make_profile_seeds.py DIRECTORY - inputs for fuzz_profile: valid and invalid lines."""

import sys
from pathlib import Path

SEEDS = {
    "all": b"short_bytes = 48\neager_bytes = 8K\npiece_bytes = 16K\npieces_in_flight = 4\n"
    b"single_copy_bytes = 1M\npolls_per_read = 16\nreads_before_yield = 100\n"
    b"reads_before_sleep = 1000\n",
    "comments": b"# a\r\n\r\n \teager_bytes\t=\t16384 # b\n",
    "wrong": b"eager_bytes\neager_bytes =\n= 1\nx = 1\neager_bytes = 0x10\n"
    b"piece_bytes = 99999999999G\n",
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in SEEDS.items():
        (directory / name).write_bytes(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
