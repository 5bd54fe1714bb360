/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * waiting.h - what scenarios that wait have in common: time, processor time, and a message to
 * wait for.
 */
#ifndef VICINAL_TESTS_API_WAITING_H
#define VICINAL_TESTS_API_WAITING_H

#include "harness.h"

/* How long a message is waited for. */
#define BLOCKED_SECONDS 0.5

/* Seconds, of a clock that only goes on. */
double now(void);
/* What this process, all of its threads together, did so far. */
struct effort {
	double time; /* seconds, as now() */
	double used; /* seconds of processor time */
	long sleeps; /* how often it gave its processor back of its own accord */
};
struct effort effort(void);
/* Since `before` this process was blocked, but for a look now and then. */
void check_idle(const struct effort *before);
void pause_for(double seconds);

/* The message that was received last. */
extern char awaited[64];

/* Post a receive for one, from anybody. */
void post(const struct side *side);
/* Send one, "abc", when `seconds` have passed. */
void send_after(const struct side *side, double seconds, fi_addr_t to);

#endif
