/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.c - see waiting.h. */
#include "waiting.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

/* Processor time that a process takes that is blocked for BLOCKED_SECONDS. */
#define BLOCKED_CPU_SECONDS 0.005

char awaited[64];

double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

double used(void)
{
	struct rusage usage;

	SAME(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void pause_for(double seconds)
{
	struct timespec time = {.tv_sec = (time_t)seconds,
				.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

	while (nanosleep(&time, &time) != 0)
		CHECK(errno == EINTR);
}

void check_idle(double before)
{
	double more = used() - before;

	if (more < BLOCKED_CPU_SECONDS)
		return;
	char text[128];
	(void)snprintf(text, sizeof(text), "blocked, and used %.1f ms of processor time", more * 1e3);
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
