"""The tuner: what can be set on a machine for messages, set safely, and the best of it found.

    knobs       what can be set: reading and writing it
    settings    setting knobs and setting them back, whatever happens
    search      which trials to run, and what they show
    measuring   trials on this machine
    outputs     settings as files for other programs

Its commands are here too. How programs are launched and measured is in ../study.
"""
