/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * process.h - processes by number and start time, so that a later process with the same number is
 * not mistaken for the first.
 */
#ifndef VICINAL_SLURM_PROCESS_H
#define VICINAL_SLURM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t number;
	uint64_t began; /* in clock ticks since the boot of the host; never 0 */
};

/*
 * Parse `NUMBER BEGAN`, for example `4711 123456`. Returns the rest of the text, or NULL if it is
 * invalid.
 */
const char *process_read(const char *text, struct process *process);

/*
 * The start time of the process whose directory, in any /proc, is open as `directory`; 0 once it
 * has ended, even if it is still a zombie.
 */
uint64_t process_began(int directory);

/* Whether the process has ended, or is ending and waits for others in its PID namespace. */
bool process_is_ending(int directory);

/* Open the process's directory in /proc. Returns the descriptor, or -1 if the process has ended. */
int process_open(const struct process *process);

/* Kill a process that has not ended, and wait for its end. Returns 0, or -1 if it does not end. */
int process_end(const struct process *process);

#endif
