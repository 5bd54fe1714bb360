/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c - event queues: events that the application writes, and insertions that report to them. */
#include "waiting.h"

#include <pthread.h>
#include <stdlib.h>

static void written(int rank)
{
	struct side side;
	struct fid_eq *eq = NULL;
	struct fid_eq *read_only = NULL;
	char bytes[100] = "";
	char context = 0;
	uint32_t event = 0;
	struct fi_eq_entry entry = {.context = &context, .data = 4711};
	struct fi_eq_entry read = {0};
	struct fi_eq_err_entry error = {0};

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){.flags = FI_WRITE}, &eq, &context), 0);
	CHECK(eq->fid.context == &context);
	SAME(fi_eq_open(side.fabric, NULL, &read_only, NULL), 0);
	SAME(fi_eq_write(read_only, FI_NOTIFY, &entry, sizeof(entry), 0), -FI_EINVAL);
	SAME(fi_eq_read(eq, &event, bytes, sizeof(bytes), 0), -FI_EAGAIN);
	SAME(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);
	/* Events of any length, in order; peeked at first, and refused where there is no room. */
	SAME(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof(entry), 0), sizeof(entry));
	SAME(fi_eq_write(eq, 0x1234, "five!", 5, 0), 5);
	SAME(fi_eq_write(eq, 0x1235, NULL, 0, 0), 0);
	SAME(fi_eq_write(eq, 1, "", SIZE_MAX, 0), -FI_EMSGSIZE);
	event = 99;
	SAME(fi_eq_read(eq, &event, &read, sizeof(read) - 1, 0), -FI_ETOOSMALL);
	SAME(event, 99);
	for (int peek = 1; peek >= 0; peek--) {
		read = (struct fi_eq_entry){0};
		SAME(fi_eq_read(eq, &event, &read, sizeof(read), peek ? FI_PEEK : 0), sizeof(read));
		SAME(event, FI_NOTIFY);
		CHECK(read.context == &context && read.data == 4711);
	}
	SAME(fi_eq_sread(eq, &event, bytes, sizeof(bytes), -1, 0), 5);
	SAME(event, 0x1234);
	CHECK(memcmp(bytes, "five!", 5) == 0);
	SAME(fi_eq_read(eq, &event, NULL, 0, 0), 0);
	SAME(event, 0x1235);
	SAME(fi_eq_read(eq, &event, bytes, sizeof(bytes), 0), -FI_EAGAIN);
	/* Unread events go with the queue. */
	SAME(fi_eq_write(eq, 1, "x", 1, 0), 1);
	SAME(fi_close(&eq->fid), 0);
	SAME(fi_close(&read_only->fid), 0);
	side_close(&side);
}

static void *write_later(void *eq)
{
	pause_for(0.03);
	SAME(fi_eq_write(eq, 7, "x", 1, 0), 1);
	return NULL;
}

static void waited_for(int rank)
{
	struct side side;
	struct fid_eq *eq = NULL;
	pthread_t thread;
	char byte = 0;
	uint32_t event = 0;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){.flags = FI_WRITE, .wait_obj = FI_WAIT_UNSPEC}, &eq,
			NULL),
	     0);
	struct fid *fids[] = {&eq->fid};
	SAME(fi_trywait(side.fabric, fids, 1), 0);
	SAME(fi_eq_sread(eq, &event, &byte, 1, 0, 0), -FI_EAGAIN);
	double begin = now();
	SAME(fi_eq_sread(eq, &event, &byte, 1, 60, 0), -FI_EAGAIN);
	CHECK(now() - begin >= 0.059);
	SAME(pthread_create(&thread, NULL, write_later, eq), 0);
	SAME(fi_eq_sread(eq, &event, &byte, 1, -1, FI_PEEK), 1);
	SAME(event, 7);
	SAME(pthread_join(thread, NULL), 0);
	SAME(fi_trywait(side.fabric, fids, 1), -FI_EAGAIN);
	SAME(fi_eq_read(eq, &event, &byte, 1, 0), 1);
	SAME(fi_trywait(side.fabric, fids, 1), 0);
	SAME(fi_close(&eq->fid), 0);
	/* No wait object is offered. */
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){.wait_obj = FI_WAIT_FD}, &eq, NULL), -FI_ENOSYS);
	side_close(&side);
}

/* An address vector that reports each insertion, and each address that is not reachable. */
static void insertions(int rank)
{
	struct side side;
	struct fid_eq *eq = NULL;
	struct fid_av *vector = NULL;
	unsigned char names[3 * NAME_MAX_BYTES];
	size_t length = NAME_MAX_BYTES;
	fi_addr_t indices[3] = {0};
	char context = 0;
	uint32_t event = 0;
	struct fi_eq_entry entry = {0};
	struct fi_eq_err_entry error = {0};
	char text[6];

	side_open(&side, rank, NULL);
	SAME(fi_getname(&side.endpoint->fid, names, &length), 0);
	memcpy(names + length, names, length);
	memcpy(names + 2 * length, names, length);
	names[length] ^= 1; /* the version of the second */
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){0}, &eq, NULL), 0);
	SAME(fi_av_open(side.domain, &(struct fi_av_attr){.flags = FI_EVENT}, &vector, NULL), 0);
	SAME(fi_av_insert(vector, names, 1, indices, 0, &context), -FI_ENOEQ);
	SAME(fi_av_bind(vector, &side.domain->fid, 0), -FI_EINVAL);
	SAME(fi_av_bind(vector, &eq->fid, 0), 0);
	SAME(fi_av_bind(vector, &eq->fid, 0), -FI_EINVAL);
	SAME(fi_close(&eq->fid), -FI_EBUSY);
	SAME(fi_av_insert(vector, names, 3, indices, 0, &context), 0);
	SAME(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAVAIL);
	SAME(fi_eq_readerr(eq, &error, FI_PEEK), sizeof(error));
	SAME(fi_eq_readerr(eq, &error, 0), sizeof(error));
	CHECK(error.fid == &vector->fid && error.context == &context);
	SAME(error.data, 1);
	SAME(error.err, FI_EHOSTUNREACH);
	CHECK(strcmp(fi_eq_strerror(eq, error.prov_errno, error.err_data, NULL, 0),
		     fi_strerror(FI_EHOSTUNREACH)) == 0);
	CHECK(fi_eq_strerror(eq, error.prov_errno, error.err_data, text, sizeof(text)) == text);
	SAME(strlen(text), sizeof(text) - 1);
	SAME(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	SAME(event, FI_AV_COMPLETE);
	CHECK(entry.fid == &vector->fid && entry.context == &context);
	SAME(entry.data, 2);
	CHECK(indices[0] == 0 && indices[1] == FI_ADDR_NOTAVAIL && indices[2] == 2);
	SAME(fi_close(&vector->fid), 0);
	SAME(fi_close(&eq->fid), 0);
	side_close(&side);
}

/* Before libfabric 1.5 error entries had no err_data_size: other data is in its place. */
static void old_errors(int rank)
{
	static const unsigned char nobody[NAME_MAX_BYTES];
	struct side side;
	struct fid_eq *eq = NULL;
	struct fid_av *vector = NULL;
	struct fi_cq_err_entry failed = {.err_data_size = 4711};
	struct fi_eq_err_entry unreachable = {.err_data_size = 4711};

	side_open(&side, rank,
		  &(struct side_options){.version = FI_VERSION(1, 4), .mr_mode = FI_MR_SCALABLE});
	SAME(fi_trecv(side.endpoint, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, &side), 0);
	SAME(fi_cancel(&side.endpoint->fid, &side), 0);
	SAME(fi_cq_readerr(side.received, &failed, 0), 1);
	SAME(failed.err, FI_ECANCELED);
	SAME(failed.err_data_size, 4711);
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){0}, &eq, NULL), 0);
	SAME(fi_av_open(side.domain, &(struct fi_av_attr){.flags = FI_EVENT}, &vector, NULL), 0);
	SAME(fi_av_bind(vector, &eq->fid, 0), 0);
	SAME(fi_av_insert(vector, nobody, 1, NULL, 0, NULL), 0);
	SAME(fi_eq_readerr(eq, &unreachable, 0), offsetof(struct fi_eq_err_entry, err_data_size));
	SAME(unreachable.err, FI_EHOSTUNREACH);
	SAME(unreachable.err_data_size, 4711);
	SAME(fi_close(&vector->fid), 0);
	SAME(fi_close(&eq->fid), 0);
	side_close(&side);
}

const struct scenario event_scenarios[] = {
	{"written", 1, written},
	{"waited_for", 1, waited_for},
	{"insertions", 1, insertions},
	{"old_errors", 1, old_errors},
	{0},
};
