/* SPDX-License-Identifier: BSD-3-Clause */
/* command.h - running the program vicinal from Slurm's daemons, as root. */
#ifndef VICINAL_SLURM_COMMAND_H
#define VICINAL_SLURM_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Run `arguments`, of which the first is the program and the last NULL, to its end. The program gets
 * nothing of a user's environment, ends with the process that called it, and is ended after a minute.
 *
 * Returns 0 if it succeeded, or else -1 with the last line that it said, of at most `length` bytes
 * with its end, in `said`.
 */
int command_run(const char *const arguments[], char *said, size_t length);

/* A program whose memory is a job's. */
struct command_of_job {
	uint32_t job;
	pid_t process;   /* once it has ended: what it was, and */
	bool was_killed; /* whether by SIGKILL */
};

/*
 * The same in the control groups of a job that has some which last as long as it does (job_cgroup.h). Of all
 * that is in them the kernel kills this program first where they are to have more memory than they may.
 */
int command_run_of_job(const char *const arguments[], struct command_of_job *of, char *said, size_t length);

/* How willingly the kernel kills this process, and what it starts, where memory is short: -1000 to 1000. */
void command_oom_score(const char *score);

/* Become `arguments[0]`, with these variables; what cannot be run says so on standard error, and ends with
 * 127. */
_Noreturn void command_become(const char *const arguments[], const char *const variables[]);

#endif
