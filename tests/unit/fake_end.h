/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_end.h - an end of a core in this process: what it sends is a message in the queue of another,
 * which refuses, loses or changes it when the test says so.
 */
#ifndef VICINAL_TESTS_FAKE_END_H
#define VICINAL_TESTS_FAKE_END_H

#include "transport/network_transport.h"

/* Ends that reach each other, in one array: the first byte of an end's name is its place there. */
#define FAKE_ENDS 3U
#define FAKE_QUEUE 256U
/* The provider that all of them say they are of. */
#define FAKE_PROVIDER 7U

struct fake_completion {
	void *context;
	size_t length;
	int error;
};

/* One end: first the core, so that it is what the transport has. Set to 0 before it is opened. */
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
	uint32_t refusals;             /* so many sends and reads find no room */
	uint32_t frames;               /* that left here */
	int send_error;                /* that sends end with */
	int read_error;                /* that reads end with */
	uint32_t registered;           /* memory that is exposed now */
	unsigned char last[FRAME_MAX]; /* the frame that left last */
	size_t last_length;
	struct fake_completion held[FAKE_QUEUE]; /* reads, while `holds_reads` */
	struct fake_completion sent[FAKE_QUEUE]; /* while `holds_sends` */
	uint32_t held_count;
	uint32_t sent_count;
	bool sinks;           /* frames to it leave, and come nowhere */
	bool reads_nothing;   /* its reads find zeros, whatever they are to read */
	bool holds_reads;     /* those that it is asked for end when it is told: fake_release() */
	bool holds_sends;     /* frames leave, but it says so when it is told: fake_release_sends() */
	bool exposes_nothing; /* no memory can be registered */
	bool closed;
};

/* Open the one at `index` of an array of FAKE_ENDS. */
void fake_end_open(struct fake_end *ends, uint8_t index);
/* The reads that were held end, and no more are held. */
void fake_release(struct fake_end *end);
void fake_release_sends(struct fake_end *end);
/* A frame that comes to `to`, from wherever. False if it has no buffer for it, or no room. */
bool fake_deliver(struct fake_end *to, const void *bytes, size_t length);

#endif
