/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * settings.h - the administrator's settings: the plugin's arguments in plugstack.conf, and the file
 * of variables for tasks.
 *
 *  command=/PATH    the program vicinal
 *  directory=/PATH  the directory of regions, on each host
 *  variables=/PATH  file with lines NAME=VALUE
 *  python=/PATH     the interpreter with Vicinal; without it, jobs can have regions but no nodes
 *  max_size=SIZE    the largest region that a user may request; default 4G
 *  network=PORT     UDP port of the separate network that the nodes of a job over several hosts
 *                   share, or `host`: the nodes use the hosts' network; default 330
 *  vfs=NAME         jobs have virtual functions as GRES of this name; default: they have none
 *  vlans=FIRST-LAST VFs of a job's nodes are in a VLAN of the job, one of these; default:
 *                   in the VLANs that the card configures
 *
 * `vicinal slurm install` writes all of them.
 */
#ifndef VICINAL_SLURM_SETTINGS_H
#define VICINAL_SLURM_SETTINGS_H

#include <stdint.h>
#include <stdio.h>

struct settings {
	const char *command;
	const char *python; /* may be NULL */
	const char *directory;
	const char *variables;
	const char *vfs;
	const char *vlans; /* may be NULL */
	uint64_t max_size;
	uint16_t network_port; /* 0: nodes use the hosts' network */
};

/*
 * Returns 0, or -1 with the invalid argument, or the name of a missing one, in `wrong`. The strings
 * still belong to the arguments.
 */
int settings_read(int count, char **arguments, struct settings *settings, const char **wrong);

/*
 * Read the next variable of the file. `line`, of `length` bytes, belongs to the caller and holds
 * both words. Returns 1, or 0 at the end, or -1 if a line is not a variable.
 */
int settings_next_variable(FILE *file, char *line, int length, const char **name, const char **value);

#endif
