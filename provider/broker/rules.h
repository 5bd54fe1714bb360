/* SPDX-License-Identifier: BSD-3-Clause */
/* rules.h - which processes may have the regions of a broker. */
#ifndef VICINAL_BROKER_RULES_H
#define VICINAL_BROKER_RULES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define RULES_MAX 64U

struct rule {
	bool group; /* the range is of groups, not of users */
	uint32_t first;
	uint32_t last;
};

struct rules {
	bool anyone;
	uint32_t count;
	struct rule rule[RULES_MAX];
};

/*
 * Read rules, with commas between them: any, uid:NUMBER, uid:FIRST-LAST, gid:NUMBER, gid:FIRST-LAST.
 * Returns false if the text has another form.
 */
bool rules_read(struct rules *rules, const char *text);

/*
 * Does a rule allow the process that made this connection? `peer` is what the kernel noted when it
 * connected: numbers in the user namespace of this process.
 */
bool rules_allow(const struct rules *rules, int connection, const struct ucred *peer);

#endif
