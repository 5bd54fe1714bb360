/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bounce.h - two ends that bounce 8 bytes, each on its own CPU. The including file must define
 * _GNU_SOURCE and PROGRAM first.
 */
#ifndef VICINAL_PROGRAMS_FABRIC_BOUNCE_H
#define VICINAL_PROGRAMS_FABRIC_BOUNCE_H

#include <sched.h>

#include "side.h"

#define PAUSE 500

enum { LEFT, RIGHT, ENDS };

/*
 * The tag of bounced messages. Other messages of an end use the end's number as tag, so that they
 * do not match.
 */
enum { BOUNCE = ENDS };

static inline void pin(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
		check(-FI_EINVAL, "sched_setaffinity");
}

static inline void name_of(struct side *side, struct name *name)
{
	name->length = sizeof(name->bytes);
	check(fi_getname(&side->endpoint->fid, name->bytes, &name->length), "fi_getname");
}

static inline void await(volatile int *word)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0)
		usleep(PAUSE);
}

static inline void tell(volatile int *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

static inline fi_addr_t know(struct side *side, const struct name *name)
{
	fi_addr_t address = FI_ADDR_UNSPEC;

	if (fi_av_insert(side->av, name->bytes, 1, &address, 0, NULL) != 1)
		check(-FI_EADDRNOTAVAIL, "fi_av_insert");
	return address;
}

static inline void expect(struct side *side, fi_addr_t from, uint64_t tag)
{
	static long word;

	check(fi_trecv(side->endpoint, &word, sizeof(word), NULL, from, tag, 0, NULL), "fi_trecv");
}

static inline void bounce(struct side *side, fi_addr_t other, int end, int iterations)
{
	for (int i = 0; i < iterations; i++) {
		expect(side, other, BOUNCE);
		if (end == LEFT)
			send_to(side, other, BOUNCE);
		wait_for_one(side, 0);
		if (end == RIGHT)
			send_to(side, other, BOUNCE);
	}
}

#endif
