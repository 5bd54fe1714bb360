"""Finding a better setting by experiment: which trials to run, and what they show.

It knows knobs as names with values, and a trial as a call that takes a setting and gives figures:
not where knobs are, nor what a trial runs. docs/explanation/tuning-search.md says what
is done, and why.

    space        the settings that there are
    objective    what is to become better
    trial        one measurement, and the line of a file that it is kept in
    blocks       the runner: blocks in random order, the budget, trials of an earlier run again
    design       the screening's design; screening, which knobs matter and a pool of candidates
    halving      fewer candidates, each on more blocks
    confirming   finalists against the present setting, on fresh trials
    choosing     Pareto sets, and one setting per phase
    mechanism    whether interrupts changed with the time
    finding      all of it in order
    explain      why this setting, in words
    spec         the file that a search is written in
"""
