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
/* Seconds of processor time that this process used, all of its threads together. */
double used(void);
void pause_for(double seconds);
/* What was used since `before` is what a process uses that is blocked. */
void check_idle(double before);

/* The message that was received last. */
extern char awaited[64];

/* Post a receive for one, from anybody. */
void post(const struct side *side);
/* Send one, "abc", when `seconds` have passed. */
void send_after(const struct side *side, double seconds, fi_addr_t to);

#endif
