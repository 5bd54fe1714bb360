/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_core.h - a core in this process, stepped by hand: what an end sends is a message in the queue of
 * the other, which refuses, loses or changes it when the test says so.
 */
#ifndef VICINAL_TESTS_FAKE_CORE_H
#define VICINAL_TESTS_FAKE_CORE_H

#include "path/network_path.h"
#include "world.h"

#define FAKE_ENDS 3U
#define FAKE_QUEUE 256U
/* Slots of a region in which they all are. */
#define FAKE_MEMBERS 6U

struct fake_completion {
	void *context;
	size_t length;
	int error;
};

/* One end: first the core, so that it is what the path has. */
struct fake_end {
	struct core core;
	struct fid_ep endpoint;
	struct fid_cq cq;
	struct fid_av av;
	struct fid_domain domain;
	struct fi_info info;
	struct fi_domain_attr attributes;
	struct fake_end *ends; /* all of them */
	struct {
		void *context;
		unsigned char *bytes;
		size_t length;
	} posted[FAKE_QUEUE];
	uint32_t posted_count;
	struct fake_completion completions[FAKE_QUEUE];
	uint32_t head;
	uint32_t tail;
	uint32_t refusals;              /* so many sends find no room */
	uint32_t frames;                /* that left here */
	int send_error;                 /* that sends end with */
	int read_error;                 /* that reads end with */
	uint32_t registered;            /* memory that is lent now */
	unsigned char last[FRAME_MOST]; /* the frame that left last */
	size_t last_length;
	bool sinks;         /* frames to it leave, and come nowhere */
	bool reads_nothing; /* its reads find zeros, whatever they are to read */
	bool closed;
};

/* A node with a region of its own. */
struct far_node {
	struct node node;
	struct region *region;
	struct directory directory;
	struct fake_end *end;
};

struct fake_world {
	struct fake_end ends[FAKE_ENDS];
	struct far_node nodes[FAKE_ENDS];
};

void fake_open(struct fake_world *world);
/* The same with all of them in one region, which has heaps of so many bytes; they have cores besides. */
void fake_open_together(struct fake_world *world, uint64_t heap_bytes);
/* One node of those alone, without the others. */
void fake_open_node(struct fake_world *world, uint8_t index);
void fake_close(struct fake_world *world);
/* `to` as `from` knows it, told by its application. */
struct correspondent *fake_peer(struct far_node *from, const struct far_node *to);
/* All nodes make progress until nothing moves. */
void fake_settle(struct fake_world *world);
/* A frame that comes to `to`, from wherever. False if it has no buffer for it. */
bool fake_deliver(struct fake_end *to, const void *bytes, size_t length);
/* Send or receive with a completion. */
ssize_t fake_send(struct far_node *from, struct correspondent *to, const void *bytes, size_t length,
		  uint64_t tag);
ssize_t fake_receive(struct far_node *at, uint32_t source, void *bytes, size_t length, uint64_t tag);
/* The next completion, which must be there. */
struct completion fake_next(struct completion_queue *queue);

#endif
