/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.c - see waiting.h. */
#include "waiting.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

/*
 * A blocked process wakes for its own heartbeat 20 times a second. A process that polls at intervals does so
 * 1000 times a second, and a process that polls continuously never sleeps. The number of sleeps distinguishes
 * these on a busy machine, too. Processor time does so less well: a few wakes were charged up to 12 ms of
 * half a second on a host that had given the core to another guest.
 */
#define SLEEPS_PER_SECOND 100.0
#define SLEEPS_AT_LEAST 10
#define SHARE_OF_PROCESSOR 0.2

char awaited[64];

double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

struct effort effort(void)
{
	struct rusage usage;

	SAME(getrusage(RUSAGE_SELF, &usage), 0);
	return (struct effort){
		.time = now(),
		.used = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
		.sleeps = usage.ru_nvcsw,
	};
}

void pause_for(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds,
				.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&time, &time) != 0)
		CHECK(errno == EINTR);
}

void check_idle(const struct effort *before)
{
	struct effort after = effort();
	double time = after.time - before->time;
	double used = after.used - before->used;
	long sleeps = after.sleeps - before->sleeps;

	if (used < SHARE_OF_PROCESSOR * time && (double)sleeps < SLEEPS_AT_LEAST + SLEEPS_PER_SECOND * time)
		return;
	char text[128];
	(void)snprintf(text, sizeof(text),
		       "blocked for %.1f ms, and used %.1f ms of processor time, in %ld sleeps", time * 1e3,
		       used * 1e3, sleeps);
	check_failed(__FILE__, __LINE__, text);
}

void post(const struct side *side)
{
	SAME(fi_recv(side->endpoint, awaited, sizeof(awaited), NULL, FI_ADDR_UNSPEC, awaited), 0);
}

void send_after(const struct side *side, double seconds, fi_addr_t to)
{
	pause_for(seconds);
	POST(side, fi_inject(side->endpoint, "abc", 3, to));
}
