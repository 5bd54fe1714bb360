"""Studies: what virtualization costs, measured.

    file           what a study is, as people write it
    environments   where its programs are launched
    workloads      what is run to be measured, one driver a module
    running        its blocks and trials, kept as they end
    result         the folder that keeps all that was measured
    analysis       what a result says

The commands are in ../study_commands, what is drawn in ../report, and methods of statistics in
../statistics. The studies themselves are data, in `vicinal.papers`.
"""
