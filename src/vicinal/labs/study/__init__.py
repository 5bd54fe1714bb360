"""Studies measure what virtualization costs.

    file           the study file, as people write it
    environments   where the programs of a study run
    workloads      the measured programs, one driver a module
    running        blocks and trials, stored as they end
    result         the folder that stores all that was measured
    analysis       what a result says

The commands are in ../study_commands, plots and pages in ../report, and statistical methods in
../statistics. The shipped studies are data, in `vicinal.papers`.
"""
