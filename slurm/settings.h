/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * settings.h - what an administrator sets: the plugin's arguments in plugstack.conf, and the file of
 * variables that tasks get.
 *
 *	command=/PATH    the program vicinal
 *	directory=/PATH  where regions are, on each host
 *	variables=/PATH  file of lines NAME=VALUE
 *	python=/PATH     the interpreter that has Vicinal; without it jobs can have regions, and no nodes
 *	max_size=SIZE    the largest region that a user may ask for; 4G if it is not there
 *	network=PORT     UDP port of the networks that the nodes of a job over several hosts have for
 *	                 themselves, or `host`: they have the hosts' network; 330 if it is not there
 *	functions=NAME   jobs have SR-IOV functions as GRES of this name; not if it is not there
 *	vlans=FIRST-LAST those of a job's nodes are in a VLAN of the job's own, one of these; if it is not
 *	                 there, in those that the card has them in
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
	const char *functions;
	const char *vlans; /* may be NULL */
	uint64_t max_size;
	uint16_t network_port; /* 0: nodes of several hosts have the hosts' network */
};

/* Returns 0, or -1 with the argument that is wrong, or the name of one that is missing, in `wrong`.
 * The strings stay those of the arguments. */
int settings_read(int count, char **arguments, struct settings *settings, const char **wrong);

/*
 * The next variable of the file; `line` is the caller's, of `length` bytes, and holds both words.
 * Returns 1, or 0 at the end, or -1 for a line that is no variable.
 */
int settings_next_variable(FILE *file, char *line, int length, const char **name, const char **value);

#endif
