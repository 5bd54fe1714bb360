/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - reads and writes of peers' memory: turns arguments into requests. */
#include <limits.h>

#include "api/provider.h"

#define ENDPOINT(fid) ((struct endpoint *)(void *)(fid))
/* struct iovec has no const member; a write only reads the buffer. */
#define PIECE(buffer, length) (&(struct iovec){(void *)(uintptr_t)(buffer), (length)})
#define RANGE(address, length, key) (&(struct fi_rma_iov){(address), (length), (key)})

static ssize_t submit(struct fid_ep *fid, fi_addr_t peer, struct remote_request *request)
{
	struct endpoint *endpoint = ENDPOINT(fid);
	uint64_t reached = 0;
	ssize_t result = -FI_EHOSTUNREACH;

	if (__builtin_expect((endpoint->capabilities & FI_RMA) == 0, 0))
		return -FI_EOPNOTSUPP;
	if (__builtin_expect(endpoint->messenger == NULL, 0))
		return -FI_EOPBADSTATE;
	if (__builtin_expect(request->count > LIMIT_PIECES || request->range_count == 0 ||
				     request->range_count > REMOTE_RANGES,
			     0))
		return -FI_EINVAL;
	for (size_t i = 0; i < request->count; i++)
		if (__builtin_add_overflow(request->length, request->pieces[i].iov_len, &request->length))
			return -FI_EMSGSIZE;
	for (size_t i = 0; i < request->range_count; i++) {
		/* No range may wrap around to address 0. */
		if (__builtin_expect(request->ranges[i].len > UINT64_MAX - request->ranges[i].addr, 0))
			return -FI_EINVAL;
		reached += request->ranges[i].len;
	}
	if (__builtin_expect(reached != request->length, 0))
		return -FI_EINVAL;
	if (__builtin_expect(request->length > SSIZE_MAX, 0))
		return -FI_EMSGSIZE;
	domain_lock(endpoint->domain);
	request->to = endpoint_resolve(endpoint, peer);
	if (__builtin_expect(request->to != NULL, 1))
		result = messenger_remote(endpoint->messenger, request);
	domain_unlock(endpoint->domain);
	return result;
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			 fi_addr_t source, uint64_t address, uint64_t key, void *context)
{
	size_t length = 0;

	(void)descriptors;
	for (size_t i = 0; i < count; i++)
		length += pieces[i].iov_len;
	return submit(fid, source,
		      &(struct remote_request){
			      .kind = REMOTE_READ,
			      .pieces = pieces,
			      .count = count,
			      .ranges = RANGE(address, length, key),
			      .range_count = 1,
			      .context = context,
			      .flags = ENDPOINT(fid)->remote_flags & ~FI_INJECT,
		      });
}

static ssize_t rma_read(struct fid_ep *fid, void *buffer, size_t length, void *descriptor, fi_addr_t source,
			uint64_t address, uint64_t key, void *context)
{
	(void)descriptor;
	return rma_readv(fid, PIECE(buffer, length), NULL, 1, source, address, key, context);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
	if (__builtin_expect((flags & FLAGS_REFUSED) != 0, 0))
		return -FI_EBADFLAGS;
	return submit(fid, message->addr,
		      &(struct remote_request){
			      .kind = REMOTE_READ,
			      .pieces = message->msg_iov,
			      .count = message->iov_count,
			      .ranges = message->rma_iov,
			      .range_count = message->rma_iov_count,
			      .context = message->context,
			      .flags = ENDPOINT(fid)->send_message_flags |
				       (flags & (FI_COMPLETION | FI_FENCE)),
		      });
}

static ssize_t write_pieces(struct fid_ep *fid, const struct iovec *pieces, size_t count, uint64_t data,
			    fi_addr_t destination, uint64_t address, uint64_t key, void *context,
			    uint64_t flags)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++)
		length += pieces[i].iov_len;
	return submit(fid, destination,
		      &(struct remote_request){
			      .kind = REMOTE_WRITE,
			      .pieces = pieces,
			      .count = count,
			      .ranges = RANGE(address, length, key),
			      .range_count = 1,
			      .data = data,
			      .context = context,
			      .flags = flags,
		      });
}

static ssize_t rma_write(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
			 fi_addr_t destination, uint64_t address, uint64_t key, void *context)
{
	(void)descriptor;
	return write_pieces(fid, PIECE(buffer, length), 1, 0, destination, address, key, context,
			    ENDPOINT(fid)->remote_flags);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			  fi_addr_t destination, uint64_t address, uint64_t key, void *context)
{
	(void)descriptors;
	return write_pieces(fid, pieces, count, 0, destination, address, key, context,
			    ENDPOINT(fid)->remote_flags);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *message, uint64_t flags)
{
	const uint64_t kept = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
			      FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA | FI_FENCE;

	if (__builtin_expect((flags & FLAGS_REFUSED) != 0, 0))
		return -FI_EBADFLAGS;
	return submit(fid, message->addr,
		      &(struct remote_request){
			      .kind = REMOTE_WRITE,
			      .pieces = message->msg_iov,
			      .count = message->iov_count,
			      .ranges = message->rma_iov,
			      .range_count = message->rma_iov_count,
			      .data = message->data,
			      .context = message->context,
			      .flags = ENDPOINT(fid)->send_message_flags | (flags & kept),
		      });
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t destination,
			  uint64_t address, uint64_t key)
{
	return write_pieces(fid, PIECE(buffer, length), 1, 0, destination, address, key, NULL,
			    ENDPOINT(fid)->remote_inject_flags);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
			     uint64_t data, fi_addr_t destination, uint64_t address, uint64_t key,
			     void *context)
{
	(void)descriptor;
	return write_pieces(fid, PIECE(buffer, length), 1, data, destination, address, key, context,
			    ENDPOINT(fid)->remote_flags | FI_REMOTE_CQ_DATA);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data,
			      fi_addr_t destination, uint64_t address, uint64_t key)
{
	return write_pieces(fid, PIECE(buffer, length), 1, data, destination, address, key, NULL,
			    ENDPOINT(fid)->remote_inject_flags | FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma rma_operations = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
