"""The input of HPCC: hpccinf.txt, in which HPL's settings are in the order that HPL reads them."""

_LINES = (
    ("HPLinpack benchmark input file", ""),
    ("Vicinal", ""),
    ("HPL.out", "output file name (if any)"),
    ("8", "device out (6=stdout,7=stderr,file)"),
    ("1", "# of problem sizes (N)"),
    ("{size}", "Ns"),
    ("1", "# of NBs"),
    ("{block}", "NBs"),
    ("0", "PMAP (0=row-,1=column-major)"),
    ("1", "# of process grids (P x Q)"),
    ("{rows}", "Ps"),
    ("{columns}", "Qs"),
    ("16.0", "threshold"),
    ("1", "# of panel fact"),
    ("2", "PFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of recursive stopping criterium"),
    ("4", "NBMINs (>= 1)"),
    ("1", "# of panels in recursion"),
    ("2", "NDIVs"),
    ("1", "# of recursive panel fact."),
    ("1", "RFACTs (0=left, 1=Crout, 2=Right)"),
    ("1", "# of broadcast"),
    ("{broadcast}", "BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)"),
    ("1", "# of lookahead depth"),
    ("1", "DEPTHs (>=0)"),
    ("2", "SWAP (0=bin-exch,1=long,2=mix)"),
    ("64", "swapping threshold"),
    ("0", "L1 in (0=transposed,1=no-transposed) form"),
    ("0", "U  in (0=transposed,1=no-transposed) form"),
    ("1", "Equilibration (0=no,1=yes)"),
    ("8", "memory alignment in double (> 0)"),
    ("#", "this line is not read"),
    ("0", "Number of additional problem sizes for PTRANS"),
    ("1200", "values of N"),
    ("0", "number of additional blocking sizes for PTRANS"),
    ("40", "values of NB"),
)


def hpcc_input(*, size: int, block: int, grid: tuple[int, int], broadcast: int) -> str:
    """For HPL's matrix of `size` rows, in blocks of `block`, over a grid of processes.

    The other tests take what is about as large.
    """
    text = "\n".join(f"{value:<12} {meaning}".rstrip() for value, meaning in _LINES) + "\n"
    return text.format(size=size, block=block, rows=grid[0], columns=grid[1], broadcast=broadcast)
