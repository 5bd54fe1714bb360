/* SPDX-License-Identifier: BSD-3-Clause */
/* waiting.h - common to scenarios that wait: time, processor time, and an awaited message. */
#ifndef VICINAL_TESTS_API_WAITING_H
#define VICINAL_TESTS_API_WAITING_H

#include "harness.h"

/* The time until the awaited message comes. */
#define BLOCKED_SECONDS 0.5

/* Seconds of a monotonic clock. */
double now(void);
/* What this process, with all its threads, has used so far. */
struct effort {
	double time; /* seconds, as now() */
	double used; /* seconds of processor time */
	long sleeps; /* voluntary context switches */
};
struct effort effort(void);
/* Checks that this process was blocked since `before`, except for a poll now and then. */
void check_idle(const struct effort *before);
void pause_for(double seconds);

/* The last received message. */
extern char awaited[64];

/* Post a receive for one, from any source. */
void post(const struct side *side);
/* Send one, "abc", after `seconds`. */
void send_after(const struct side *side, double seconds, fi_addr_t to);

#endif
