/* SPDX-License-Identifier: BSD-3-Clause */
/* command.h - runs the program vicinal from Slurm's daemons, as root. */
#ifndef VICINAL_SLURM_COMMAND_H
#define VICINAL_SLURM_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Run `arguments` to its end: the program, its arguments, and NULL. The program gets none of the
 * user's environment variables, ends with the process that called this function, and is killed
 * after a minute. Returns 0 if it succeeded, otherwise -1 with the last line of its output in
 * `said`, of at most `length` bytes including the null byte.
 */
int command_run(const char *const arguments[], char *said, size_t length);

/* A program whose memory is charged to a job. */
struct command_of_job {
	uint32_t job;
	pid_t process;   /* after its end: its process number */
	bool was_killed; /* after its end: SIGKILL ended it */
};

/*
 * The same in the control groups of a job, if the job has groups that last as long as the job
 * (job_cgroup.h). If the memory of these groups runs out, the kernel kills this program first.
 */
int command_run_of_job(const char *const arguments[], struct command_of_job *of, char *said, size_t length);

/*
 * Set how readily the kernel kills this process and its children if memory is short: -1000 to 1000.
 */
void command_oom_score(const char *score);

/*
 * Execute `arguments[0]` in this process, with these variables. If that fails, prints the reason to
 * standard error and exits with status 127.
 */
_Noreturn void command_become(const char *const arguments[], const char *const variables[]);

#endif
