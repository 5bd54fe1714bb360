"""Finds a better setting by experiment: chooses the trials to run, and says what they show.

The search knows knobs as names with values, and a trial as a call that takes a setting and returns
figures. It does not know where knobs are, nor what a trial runs. docs/how-to/tuning.md
describes the method and its reasons.

    space        the settings to choose from
    objective    the figures to improve
    trial        one measurement, and its line in a file
    blocks       the runner: blocks in random order, the budget, replay of recorded trials
    design       the screening's design; screening: important knobs and a pool of candidates
    halving      fewer candidates in each round, each on more blocks
    confirming   finalists against the present setting, on fresh trials
    choosing     Pareto sets, and one setting per phase
    mechanism    whether interrupts changed together with the time
    finding      all steps in order
    explain      the reasons for a setting, in words
    spec         the file of a search
"""
