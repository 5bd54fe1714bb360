/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - processes by number and beginning, so that a number which another got later is not taken for
 * it. */
#ifndef VICINAL_SLURM_PROCESS_H
#define VICINAL_SLURM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t number;
	uint64_t began; /* in ticks since the host was started; never 0 */
};

/* Read `NUMBER BEGAN`, as in `4711 123456`. Returns what follows it, or NULL where that is no process. */
const char *process_read(const char *text, struct process *process);

/*
 * When the process began whose directory of /proc, or of another PID namespace's, is open as `directory`; 0
 * once it has ended, though nobody may have waited for it.
 */
uint64_t process_began(int directory);

/* Whether it has ended, or waits for the end of others in its PID namespace. */
bool process_is_ending(int directory);

/* Open the process's directory of /proc. Returns the descriptor, or -1 if it has ended. */
int process_open(const struct process *process);

/* Kill a process, if it has not ended, and wait until it has. Returns 0, or -1 if it does not end. */
int process_end(const struct process *process);

#endif
