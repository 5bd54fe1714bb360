/* SPDX-License-Identifier: BSD-3-Clause */
/* serve.h - answers the processes that connect to a broker's sockets. */
#ifndef VICINAL_BROKER_SERVE_H
#define VICINAL_BROKER_SERVE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "broker/rules.h"

#define SERVED_MAX 256U

/* What the supervisor and all its servers, one after the other, know of a region. */
struct use {
	atomic_bool used;  /* a process has had the region */
	atomic_bool ended; /* its last member left long ago; the supervisor forgets the region */
};

struct served {
	const char *path; /* of the socket */
	int listener;     /* -1 once the region has ended */
	int memory;
	struct use *use;
	uint64_t last_used; /* nanoseconds by the clock of broker_now() */
	dev_t device;       /* of the socket's file, to recognize it before it is removed */
	ino_t inode;
};

struct broker {
	uint32_t members;
	uint64_t idle; /* nanoseconds without a member after which a region ends; 0: never */
	struct rules rules;
	uint32_t count;
	struct served served[SERVED_MAX];
};

enum serve_end {
	SERVE_REGION_ENDED, /* regions ended: the supervisor forgets them */
	SERVE_ALONE,        /* the supervisor is gone */
};

/*
 * Answer connections. `supervisor` is readable when the supervisor has ended. Never waits for a
 * process that connected.
 */
enum serve_end serve(struct broker *broker, int supervisor);

uint64_t broker_now(void);

#endif
