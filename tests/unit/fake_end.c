/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_end.c - see fake_end.h. */
#include "fake_end.h"

/* cmocka needs these headers before its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>

#define END_OF(fid, member) ((struct fake_end *)(void *)((char *)(fid)-offsetof(struct fake_end, member)))

static void complete(struct fake_end *end, void *context, size_t length, int error)
{
	assert_true(end->tail - end->head < FAKE_QUEUE);
	end->completions[end->tail++ % FAKE_QUEUE] = (struct fake_completion){context, length, error};
}

bool fake_deliver(struct fake_end *to, const void *bytes, size_t length)
{
	if (to->posted_count == 0 || to->tail - to->head == FAKE_QUEUE)
		return false;
	void *context = to->posted[0].context;
	unsigned char *buffer = to->posted[0].bytes;
	size_t room = to->posted[0].length;
	to->posted_count--;
	memmove(&to->posted[0], &to->posted[1], to->posted_count * sizeof(to->posted[0]));
	if (room > 0)
		memcpy(buffer, bytes, length < room ? length : room);
	complete(to, context, length, length > room ? FI_ETRUNC : 0);
	return true;
}

/* Is there room for the completion of a send or read? The other half of the queue is for arriving frames. */
static bool has_room(struct fake_end *end)
{
	if (end->refusals == 0)
		return end->tail - end->head < FAKE_QUEUE / 2;
	end->refusals--;
	return false;
}

static ssize_t transmit(struct fid_ep *fid, const struct iovec *pieces, size_t count, fi_addr_t to,
			void *context, bool completes)
{
	struct fake_end *end = END_OF(fid, endpoint);

	if (!has_room(end))
		return -FI_EAGAIN;
	end->last_length = 0;
	for (size_t i = 0; i < count; i++) {
		memcpy(end->last + end->last_length, pieces[i].iov_base, pieces[i].iov_len);
		end->last_length += pieces[i].iov_len;
	}
	if (end->send_error == 0 && !end->ends[to].sinks &&
	    !fake_deliver(&end->ends[to], end->last, end->last_length))
		return -FI_EAGAIN;
	end->frames++;
	if (completes && end->holds_sends) {
		assert_true(end->sent_count < FAKE_QUEUE);
		end->sent[end->sent_count++] = (struct fake_completion){.context = context};
		return 0;
	}
	if (completes)
		complete(end, context, 0, end->send_error);
	return 0;
}

static ssize_t ep_sendv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			fi_addr_t to, void *context)
{
	(void)descriptors;
	return transmit(fid, pieces, count, to, context, true);
}

static ssize_t ep_inject(struct fid_ep *fid, const void *bytes, size_t length, fi_addr_t to)
{
	struct iovec piece = {(void *)(uintptr_t)bytes, length};

	assert_true(length <= END_OF(fid, endpoint)->core.inject);
	return transmit(fid, &piece, 1, to, NULL, false);
}

static ssize_t ep_recv(struct fid_ep *fid, void *buffer, size_t length, void *descriptor, fi_addr_t from,
		       void *context)
{
	struct fake_end *end = END_OF(fid, endpoint);

	(void)descriptor;
	(void)from;
	assert_true(end->posted_count < FAKE_QUEUE);
	end->posted[end->posted_count].context = context;
	end->posted[end->posted_count].bytes = buffer;
	end->posted[end->posted_count++].length = length;
	return 0;
}

/* The key is the length of the exposed memory, and the address is a real address. */
static ssize_t ep_readmsg(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
	struct fake_end *end = END_OF(fid, endpoint);

	assert_int_equal(flags, FI_COMPLETION);
	assert_int_equal(message->iov_count, message->rma_iov_count);
	if (!has_room(end))
		return -FI_EAGAIN;
	for (size_t i = 0; i < message->iov_count && end->read_error == 0; i++) {
		const struct iovec *to = &message->msg_iov[i];
		assert_int_equal(to->iov_len, message->rma_iov[i].len);
		if (end->reads_nothing && to->iov_len > 0)
			memset(to->iov_base, 0, to->iov_len);
		else
			memcpy(to->iov_base, (const void *)(uintptr_t)message->rma_iov[i].addr, to->iov_len);
	}
	if (!end->holds_reads) {
		complete(end, message->context, 0, end->read_error);
		return 0;
	}
	assert_true(end->held_count < FAKE_QUEUE);
	end->held[end->held_count++] = (struct fake_completion){.context = message->context};
	return 0;
}

void fake_release(struct fake_end *end)
{
	end->holds_reads = false;
	for (uint32_t i = 0; i < end->held_count; i++)
		complete(end, end->held[i].context, 0, end->read_error);
	end->held_count = 0;
}

void fake_release_sends(struct fake_end *end)
{
	end->holds_sends = false;
	for (uint32_t i = 0; i < end->sent_count; i++)
		complete(end, end->sent[i].context, 0, end->send_error);
	end->sent_count = 0;
}

static ssize_t ep_read(struct fid_ep *fid, void *buffer, size_t length, void *descriptor, fi_addr_t from,
		       uint64_t address, uint64_t key, void *context)
{
	const struct iovec to = {buffer, length};
	const struct fi_rma_iov there = {address, length, key};

	(void)descriptor;
	return ep_readmsg(fid,
			  &(struct fi_msg_rma){.msg_iov = &to,
					       .iov_count = 1,
					       .addr = from,
					       .rma_iov = &there,
					       .rma_iov_count = 1,
					       .context = context},
			  FI_COMPLETION);
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
	struct fake_end *end = END_OF(fid, cq);
	struct fi_cq_msg_entry *entries = buffer;
	size_t taken = 0;

	for (; taken < count && end->head != end->tail; taken++) {
		const struct fake_completion *first = &end->completions[end->head % FAKE_QUEUE];
		if (first->error != 0)
			break;
		entries[taken] = (struct fi_cq_msg_entry){.op_context = first->context, .len = first->length};
		end->head++;
	}
	if (taken > 0)
		return (ssize_t)taken;
	return end->head == end->tail ? -FI_EAGAIN : -FI_EAVAIL;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
	struct fake_end *end = END_OF(fid, cq);
	const struct fake_completion *first = &end->completions[end->head++ % FAKE_QUEUE];

	(void)flags;
	entry->op_context = first->context;
	entry->err = first->error;
	return 1;
}

static int av_insert(struct fid_av *fid, const void *address, size_t count, fi_addr_t *result, uint64_t flags,
		     void *context)
{
	const unsigned char *bytes = address;

	(void)fid;
	(void)flags;
	(void)context;
	assert_int_equal(count, 1);
	if (bytes[0] >= FAKE_ENDS)
		return 0;
	*result = bytes[0];
	return 1;
}

struct fake_mr {
	struct fid_mr mr; /* must be first */
	struct fake_end *end;
};

static int mr_close(struct fid *fid)
{
	struct fake_mr *mr = (struct fake_mr *)(void *)fid;

	mr->end->registered--;
	free(mr);
	return 0;
}

static struct fi_ops mr_ops = {.size = sizeof(struct fi_ops), .close = mr_close};

static int mr_reg(struct fid *fid, const void *buffer, size_t length, uint64_t access, uint64_t offset,
		  uint64_t requested, uint64_t flags, struct fid_mr **opened, void *context)
{
	struct fake_end *end = END_OF(fid, domain.fid);
	struct fake_mr *mr = calloc(1, sizeof(*mr));

	(void)buffer;
	(void)offset;
	(void)requested;
	(void)flags;
	(void)context;
	assert_non_null(mr);
	assert_int_equal(access, FI_REMOTE_READ);
	if (end->exposes_nothing) {
		free(mr);
		return -FI_ENOMEM;
	}
	mr->mr.fid.ops = &mr_ops;
	mr->mr.key = length;
	mr->end = end;
	end->registered++;
	*opened = &mr->mr;
	return 0;
}

static void close_core(struct core *core)
{
	struct fake_end *end = (struct fake_end *)(void *)core;

	end->closed = true;
	end->posted_count = 0;
}

static struct fi_ops_msg message_ops = {
	.size = sizeof(struct fi_ops_msg), .sendv = ep_sendv, .inject = ep_inject, .recv = ep_recv};
static struct fi_ops_rma rma_ops = {
	.size = sizeof(struct fi_ops_rma), .read = ep_read, .readmsg = ep_readmsg};
static struct fi_ops_cq cq_ops = {.size = sizeof(struct fi_ops_cq), .read = cq_read, .readerr = cq_readerr};
static struct fi_ops_av av_ops = {.size = sizeof(struct fi_ops_av), .insert = av_insert};
static struct fi_ops_mr domain_mr_ops = {.size = sizeof(struct fi_ops_mr), .reg = mr_reg};

void fake_end_open(struct fake_end *ends, uint8_t index)
{
	struct fake_end *end = &ends[index];

	end->ends = ends;
	end->endpoint.msg = &message_ops;
	end->endpoint.rma = &rma_ops;
	end->cq.ops = &cq_ops;
	end->av.ops = &av_ops;
	end->domain.mr = &domain_mr_ops;
	end->attributes.mr_mode = FI_MR_VIRT_ADDR;
	end->info.domain_attr = &end->attributes;
	end->core = (struct core){
		.info = &end->info,
		.domain = &end->domain,
		.av = &end->av,
		.cq = &end->cq,
		.endpoint = &end->endpoint,
		.name = {.provider = FAKE_PROVIDER, .length = 1, .bytes = {index}},
		.inject = 128,
		.reads = true,
		.reads_pieces = index != 1, /* one end cannot */
		.close = close_core,
	};
}
