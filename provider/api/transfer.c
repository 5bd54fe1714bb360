/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.c - message and tagged calls: turns arguments into requests. */
#include "api/provider.h"

/* Fails calls before fi_enable(). */
#define REQUIRE_ENABLED(endpoint) \
	do { \
		if ((endpoint)->messenger == NULL) \
			return -FI_EOPBADSTATE; \
	} while (0)

static inline __attribute__((always_inline)) ssize_t submit(struct fid_ep *fid, const struct iovec *pieces,
							    size_t count, fi_addr_t destination, uint64_t tag,
							    uint64_t data, void *context, uint64_t flags)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	ssize_t result = -FI_EHOSTUNREACH;
	struct send_request request = {
		.pieces = pieces,
		.count = count,
		.tag = tag,
		.data = data,
		.context = context,
		.flags = flags,
	};

	REQUIRE_ENABLED(endpoint);
	if (__builtin_expect(count > LIMIT_PIECES, 0))
		return -FI_EINVAL;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(request.length, pieces[i].iov_len, &request.length))
			return -FI_EMSGSIZE;
	domain_lock(endpoint->domain);
	request.to = endpoint_resolve(endpoint, destination);
	if (__builtin_expect(request.to != NULL, 1))
		result = messenger_send(endpoint->messenger, &request);
	domain_unlock(endpoint->domain);
	return result;
}

static inline __attribute__((always_inline)) ssize_t post(struct fid_ep *fid, const struct iovec *pieces,
							  size_t count, fi_addr_t source, uint64_t tag,
							  uint64_t ignore, void *context, uint64_t flags)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	ssize_t result = -FI_EHOSTUNREACH;
	struct receive_request request = {
		.pieces = pieces,
		.count = count,
		.source = MATCH_ANY_SOURCE,
		.tag = tag,
		.ignore = ignore,
		.context = context,
		.flags = flags,
	};

	REQUIRE_ENABLED(endpoint);
	if (__builtin_expect(count > LIMIT_PIECES || ((flags & FI_MULTI_RECV) != 0 && count != 1) ||
				     (flags & (FI_DISCARD | FI_PEEK | FI_CLAIM)) == FI_DISCARD,
			     0))
		return -FI_EINVAL;
	size_t room = 0;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(room, pieces[i].iov_len, &room))
			return -FI_EINVAL;
	domain_lock(endpoint->domain);
	if (source != FI_ADDR_UNSPEC && (endpoint->capabilities & FI_DIRECTED_RECV) != 0) {
		struct msg_peer *from = endpoint_resolve(endpoint, source);
		if (__builtin_expect(from == NULL, 0)) {
			domain_unlock(endpoint->domain);
			return result;
		}
		request.source = from->peer.source;
		/* The peer is gone, so only messages that already arrived can match. */
		if (!is_present(from) && !messenger_may_receive(endpoint->messenger, from, &request)) {
			result = transport_refuse(&from->peer);
			domain_unlock(endpoint->domain);
			return result;
		}
	}
	result = messenger_receive(endpoint->messenger, &request);
	domain_unlock(endpoint->domain);
	return result;
}

/*
 * The slow path of fi_sendmsg() and fi_tsendmsg(): rejects unsupported flags, and holds back fenced messages.
 * Messages keep their order without FI_FENCE, but they pass between the pieces of a long read or write.
 */
static __attribute__((cold, noinline)) ssize_t check_flags(struct fid_ep *fid, fi_addr_t destination,
							   uint64_t flags)
{
	struct endpoint *endpoint = (struct endpoint *)(void *)fid;
	ssize_t result = 0;

	if ((flags & SEND_FLAGS_REFUSED) != 0)
		return -FI_EBADFLAGS;
	REQUIRE_ENABLED(endpoint);
	domain_lock(endpoint->domain);
	const struct msg_peer *to = endpoint_resolve(endpoint, destination);
	if (to == NULL)
		result = -FI_EHOSTUNREACH;
	else if (!messenger_is_quiet(endpoint->messenger, to))
		result = -FI_EAGAIN;
	domain_unlock(endpoint->domain);
	return result;
}

static inline ssize_t may_submit(struct fid_ep *fid, fi_addr_t destination, uint64_t flags)
{
	return __builtin_expect((flags & (SEND_FLAGS_REFUSED | FI_FENCE)) == 0, 1)
		       ? 0
		       : check_flags(fid, destination, flags);
}

#define ENDPOINT(fid) ((struct endpoint *)(void *)(fid))
/* struct iovec has no const member; a send only reads the buffer. */
#define PIECE(buffer, length) (&(struct iovec){(void *)(uintptr_t)(buffer), (length)})

/* ---- tagged ---- */

static ssize_t tagged_recv(struct fid_ep *fid, void *buffer, size_t length, void *descriptor,
			   fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
	(void)descriptor;
	return post(fid, PIECE(buffer, length), 1, source, tag, ignore, context,
		    (ENDPOINT(fid)->receive_flags & ~FI_MULTI_RECV) | FI_TAGGED);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			    fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
	(void)descriptors;
	return post(fid, pieces, count, source, tag, ignore, context,
		    (ENDPOINT(fid)->receive_flags & ~FI_MULTI_RECV) | FI_TAGGED);
}

static ssize_t tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
	const uint64_t kept = FI_COMPLETION | FI_PEEK | FI_CLAIM | FI_DISCARD;

	/* A tagged receive takes one message. */
	if (__builtin_expect((flags & (RECEIVE_FLAGS_REFUSED | FI_MULTI_RECV)) != 0, 0))
		return -FI_EBADFLAGS;
	return post(fid, message->msg_iov, message->iov_count, message->addr, message->tag, message->ignore,
		    message->context, ENDPOINT(fid)->receive_message_flags | (flags & kept) | FI_TAGGED);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
			   fi_addr_t destination, uint64_t tag, void *context)
{
	(void)descriptor;
	return submit(fid, PIECE(buffer, length), 1, destination, tag, 0, context,
		      ENDPOINT(fid)->send_flags | FI_TAGGED);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			    fi_addr_t destination, uint64_t tag, void *context)
{
	(void)descriptors;
	return submit(fid, pieces, count, destination, tag, 0, context,
		      ENDPOINT(fid)->send_flags | FI_TAGGED);
}

static const uint64_t send_flags_kept = FI_COMPLETION | FI_INJECT | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA;

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *message, uint64_t flags)
{
	ssize_t result = may_submit(fid, message->addr, flags);

	if (__builtin_expect(result != 0, 0))
		return result;
	return submit(fid, message->msg_iov, message->iov_count, message->addr, message->tag, message->data,
		      message->context,
		      ENDPOINT(fid)->send_message_flags | (send_level(flags) & send_flags_kept) | FI_TAGGED);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t destination,
			     uint64_t tag)
{
	return submit(fid, PIECE(buffer, length), 1, destination, tag, 0, NULL, FI_INJECT | FI_TAGGED);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
			       uint64_t data, fi_addr_t destination, uint64_t tag, void *context)
{
	(void)descriptor;
	return submit(fid, PIECE(buffer, length), 1, destination, tag, data, context,
		      ENDPOINT(fid)->send_flags | FI_TAGGED | FI_REMOTE_CQ_DATA);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data,
				 fi_addr_t destination, uint64_t tag)
{
	return submit(fid, PIECE(buffer, length), 1, destination, tag, data, NULL,
		      FI_INJECT | FI_TAGGED | FI_REMOTE_CQ_DATA);
}

struct fi_ops_tagged tagged_operations = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.recvv = tagged_recvv,
	.recvmsg = tagged_recvmsg,
	.send = tagged_send,
	.sendv = tagged_sendv,
	.sendmsg = tagged_sendmsg,
	.inject = tagged_inject,
	.senddata = tagged_senddata,
	.injectdata = tagged_injectdata,
};

/* ---- untagged: every message fits every receive ---- */

static ssize_t message_recv(struct fid_ep *fid, void *buffer, size_t length, void *descriptor,
			    fi_addr_t source, void *context)
{
	(void)descriptor;
	return post(fid, PIECE(buffer, length), 1, source, 0, UINT64_MAX, context,
		    ENDPOINT(fid)->receive_flags | FI_MSG);
}

static ssize_t message_recvv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			     fi_addr_t source, void *context)
{
	(void)descriptors;
	return post(fid, pieces, count, source, 0, UINT64_MAX, context,
		    ENDPOINT(fid)->receive_flags | FI_MSG);
}

static ssize_t message_recvmsg(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags)
{
	const uint64_t kept = FI_COMPLETION | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

	if (__builtin_expect((flags & RECEIVE_FLAGS_REFUSED) != 0, 0))
		return -FI_EBADFLAGS;
	return post(fid, message->msg_iov, message->iov_count, message->addr, 0, UINT64_MAX, message->context,
		    ENDPOINT(fid)->receive_message_flags | (flags & kept) | FI_MSG);
}

static ssize_t message_send(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
			    fi_addr_t destination, void *context)
{
	(void)descriptor;
	return submit(fid, PIECE(buffer, length), 1, destination, 0, 0, context,
		      ENDPOINT(fid)->send_flags | FI_MSG);
}

static ssize_t message_sendv(struct fid_ep *fid, const struct iovec *pieces, void **descriptors, size_t count,
			     fi_addr_t destination, void *context)
{
	(void)descriptors;
	return submit(fid, pieces, count, destination, 0, 0, context, ENDPOINT(fid)->send_flags | FI_MSG);
}

static ssize_t message_sendmsg(struct fid_ep *fid, const struct fi_msg *message, uint64_t flags)
{
	ssize_t result = may_submit(fid, message->addr, flags);

	if (__builtin_expect(result != 0, 0))
		return result;
	return submit(fid, message->msg_iov, message->iov_count, message->addr, 0, message->data,
		      message->context,
		      ENDPOINT(fid)->send_message_flags | (send_level(flags) & send_flags_kept) | FI_MSG);
}

static ssize_t message_inject(struct fid_ep *fid, const void *buffer, size_t length, fi_addr_t destination)
{
	return submit(fid, PIECE(buffer, length), 1, destination, 0, 0, NULL, FI_INJECT | FI_MSG);
}

static ssize_t message_senddata(struct fid_ep *fid, const void *buffer, size_t length, void *descriptor,
				uint64_t data, fi_addr_t destination, void *context)
{
	(void)descriptor;
	return submit(fid, PIECE(buffer, length), 1, destination, 0, data, context,
		      ENDPOINT(fid)->send_flags | FI_MSG | FI_REMOTE_CQ_DATA);
}

static ssize_t message_injectdata(struct fid_ep *fid, const void *buffer, size_t length, uint64_t data,
				  fi_addr_t destination)
{
	return submit(fid, PIECE(buffer, length), 1, destination, 0, data, NULL,
		      FI_INJECT | FI_MSG | FI_REMOTE_CQ_DATA);
}

struct fi_ops_msg message_operations = {
	.size = sizeof(struct fi_ops_msg),
	.recv = message_recv,
	.recvv = message_recvv,
	.recvmsg = message_recvmsg,
	.send = message_send,
	.sendv = message_sendv,
	.sendmsg = message_sendmsg,
	.inject = message_inject,
	.senddata = message_senddata,
	.injectdata = message_injectdata,
};
