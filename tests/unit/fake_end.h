/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fake_end.h - an endpoint of a core provider in this process: a send puts a message into the queue of
 * another end. The test can make an end refuse, lose or change messages.
 */
#ifndef VICINAL_TESTS_FAKE_END_H
#define VICINAL_TESTS_FAKE_END_H

#include "transport/network_transport.h"

/* The number of ends in an array. They reach each other, and the first byte of an end's name is its index. */
#define FAKE_ENDS 3U
#define FAKE_QUEUE 256U
/* The number of the provider in the names of all ends. */
#define FAKE_PROVIDER 7U

struct fake_completion {
	void *context;
	size_t length;
	int error;
};

/* One end. The core comes first, because the transport holds a pointer to it. Set to 0 before opening. */
struct fake_end {
	struct core core;
	struct fid_ep endpoint;
	struct fid_cq cq;
	struct fid_av av;
	struct fid_domain domain;
	struct fi_info info;
	struct fi_domain_attr attributes;
	struct fake_end *ends; /* the array that this end is in */
	struct {
		void *context;
		unsigned char *bytes;
		size_t length;
	} posted[FAKE_QUEUE];
	uint32_t posted_count;
	struct fake_completion completions[FAKE_QUEUE];
	uint32_t head;
	uint32_t tail;
	uint32_t refusals;             /* this many of the next sends and reads find no room */
	uint32_t frames;               /* frames sent by this end */
	int send_error;                /* the error with which sends end */
	int read_error;                /* the error with which reads end */
	uint32_t registered;           /* the number of registrations now */
	unsigned char last[FRAME_MAX]; /* the last frame that was sent */
	size_t last_length;
	struct fake_completion held[FAKE_QUEUE]; /* reads, while `holds_reads` */
	struct fake_completion sent[FAKE_QUEUE]; /* sends, while `holds_sends` */
	uint32_t held_count;
	uint32_t sent_count;
	bool sinks;           /* frames to this end are lost */
	bool reads_nothing;   /* its reads return zeros instead of the memory */
	bool holds_reads;     /* its reads complete only at fake_release() */
	bool holds_sends;     /* its frames leave, but sends complete only at fake_release_sends() */
	bool exposes_nothing; /* no memory can be registered */
	bool closed;
};

/* Open the end at `index` of an array of FAKE_ENDS. */
void fake_end_open(struct fake_end *ends, uint8_t index);
/* Complete the reads that were held, and hold no more. */
void fake_release(struct fake_end *end);
void fake_release_sends(struct fake_end *end);
/* Deliver a frame to `to`, from any sender. Returns false if `to` has no buffer or no room for it. */
bool fake_deliver(struct fake_end *to, const void *bytes, size_t length);

#endif
