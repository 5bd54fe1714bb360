"""The tuner: shows what can be set on a host for messages, sets it safely, and finds better
settings.

    knobs       what can be set: reading and writing
    settings    setting knobs, and restoring them after any end
    search      which trials to run, and what the trials show
    measuring   trials on this host
    outputs     settings as files for other programs

The tuner's commands are here too. ../study launches and measures programs.
"""
