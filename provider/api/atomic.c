/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.c - atomic operations on peers' memory, and queries which atomics are supported. */
#include "api/provider.h"

#define ENDPOINT(fid) ((struct endpoint *)(void *)(fid))
#define ELEMENTS(buffer, count) (&(struct fi_ioc){(void *)(uintptr_t)(buffer), (count)})

/* A list of elements, as libfabric's calls pass it. */
struct elements {
	const struct fi_ioc *pieces;
	size_t count; /* of pieces */
};

#define ONE(buffer, count) ((struct elements){ELEMENTS(buffer, count), 1})
#define SEVERAL(pieces, count) ((struct elements){(pieces), (count)})
#define NOTHING ((struct elements){NULL, 0})

/* An atomic as libfabric's calls pass it: counted in elements. */
struct call {
	uint32_t form; /* enum atomic_form */
	enum fi_datatype datatype;
	enum fi_op operation;
	struct elements operands;
	struct elements compares;
	struct elements results;
	const struct fi_rma_ioc *ranges;
	size_t range_count;
	void *context;
	uint64_t flags;
};

/*
 * Converts a list of elements to a list of bytes. Returns false if the list is too long or has not `length`
 * bytes.
 */
static bool in_bytes(struct elements elements, size_t size, uint64_t length, struct iovec *pieces)
{
	uint64_t bytes = 0;

	if (elements.count > LIMIT_PIECES)
		return false;
	for (size_t i = 0; i < elements.count; i++) {
		if (elements.pieces[i].count > WIRE_ATOMIC_BYTES)
			return false;
		pieces[i] = (struct iovec){elements.pieces[i].addr, elements.pieces[i].count * size};
		bytes += pieces[i].iov_len;
	}
	return bytes == length;
}

static ssize_t submit(struct fid_ep *fid, fi_addr_t peer, const struct call *call)
{
	struct endpoint *endpoint = ENDPOINT(fid);
	size_t size = atomic_element_bytes(call->datatype);
	struct fi_rma_iov ranges[REMOTE_RANGES];
	struct iovec pieces[LIMIT_PIECES];
	struct iovec compares[LIMIT_PIECES];
	struct iovec results[LIMIT_PIECES];
	ssize_t result = -FI_EHOSTUNREACH;
	struct remote_request request = {
		.kind = REMOTE_ATOMIC,
		.pieces = pieces,
		.count = call->operands.count,
		.ranges = ranges,
		.range_count = call->range_count,
		.context = call->context,
		.flags = call->flags,
		.datatype = call->datatype,
		.operation = call->operation,
		.form = call->form,
		.compares = compares,
		.compare_count = call->compares.count,
		.results = results,
		.result_count = call->results.count,
	};

	if ((endpoint->capabilities & FI_ATOMIC) == 0 ||
	    !atomic_is_valid(call->datatype, call->operation, call->form))
		return -FI_EOPNOTSUPP;
	if (endpoint->messenger == NULL)
		return -FI_EOPBADSTATE;
	if (call->range_count == 0 || call->range_count > REMOTE_RANGES)
		return -FI_EINVAL;
	for (size_t i = 0; i < call->range_count; i++) {
		if (call->ranges[i].count > WIRE_ATOMIC_BYTES)
			return -FI_EMSGSIZE;
		ranges[i] = (struct fi_rma_iov){call->ranges[i].addr, call->ranges[i].count * size,
						call->ranges[i].key};
		request.length += ranges[i].len;
	}
	if (request.length > WIRE_ATOMIC_BYTES)
		return -FI_EMSGSIZE;
	bool reads = call->operation == FI_ATOMIC_READ;
	if (request.length == 0 || (!reads && !in_bytes(call->operands, size, request.length, pieces)) ||
	    (call->form == ATOMIC_COMPARE && !in_bytes(call->compares, size, request.length, compares)) ||
	    (call->form != ATOMIC_BASE && !in_bytes(call->results, size, request.length, results)))
		return -FI_EINVAL;
	domain_lock(endpoint->domain);
	request.to = endpoint_resolve(endpoint, peer);
	if (__builtin_expect(request.to != NULL, 1))
		result = messenger_remote(endpoint->messenger, &request);
	domain_unlock(endpoint->domain);
	return result;
}

/* For calls without a list of ranges: the target's elements are contiguous, as many as `counted` has. */
static ssize_t submit_row(struct fid_ep *fid, fi_addr_t peer, uint64_t address, uint64_t key,
			  struct elements counted, struct call call)
{
	struct fi_rma_ioc range = {.addr = address, .key = key};

	for (size_t i = 0; i < counted.count; i++)
		if (__builtin_add_overflow(range.count, counted.pieces[i].count, &range.count))
			return -FI_EMSGSIZE;
	call.ranges = &range;
	call.range_count = 1;
	return submit(fid, peer, &call);
}

static ssize_t submit_message(struct fid_ep *fid, const struct fi_msg_atomic *message, uint32_t form,
			      struct elements compares, struct elements results, uint64_t flags)
{
	const uint64_t kept = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
			      FI_DELIVERY_COMPLETE | FI_FENCE;

	/* An atomic cannot target a tagged buffer. */
	if (__builtin_expect((flags & (FLAGS_REFUSED | FI_TAGGED)) != 0, 0))
		return -FI_EBADFLAGS;
	return submit(fid, message->addr,
		      &(struct call){
			      .form = form,
			      .datatype = message->datatype,
			      .operation = message->op,
			      .operands = SEVERAL(message->msg_iov, message->iov_count),
			      .compares = compares,
			      .results = results,
			      .ranges = message->rma_iov,
			      .range_count = message->rma_iov_count,
			      .context = message->context,
			      .flags = ENDPOINT(fid)->send_message_flags | (flags & kept),
		      });
}

/* ---- without a result ---- */

static ssize_t write_row(struct fid_ep *fid, struct elements operands, fi_addr_t destination,
			 uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op operation,
			 void *context, uint64_t flags)
{
	struct call call = {
		.form = ATOMIC_BASE,
		.datatype = datatype,
		.operation = operation,
		.operands = operands,
		.context = context,
		.flags = flags,
	};

	return submit_row(fid, destination, address, key, operands, call);
}

static ssize_t atomic_write(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
			    fi_addr_t destination, uint64_t address, uint64_t key, enum fi_datatype datatype,
			    enum fi_op operation, void *context)
{
	(void)descriptor;
	return write_row(fid, ONE(buffer, count), destination, address, key, datatype, operation, context,
			 ENDPOINT(fid)->remote_flags);
}

static ssize_t atomic_writev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
			     size_t count, fi_addr_t destination, uint64_t address, uint64_t key,
			     enum fi_datatype datatype, enum fi_op operation, void *context)
{
	(void)descriptors;
	return write_row(fid, SEVERAL(operands, count), destination, address, key, datatype, operation,
			 context, ENDPOINT(fid)->remote_flags);
}

static ssize_t atomic_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *message, uint64_t flags)
{
	return submit_message(fid, message, ATOMIC_BASE, NOTHING, NOTHING, flags);
}

static ssize_t atomic_inject(struct fid_ep *fid, const void *buffer, size_t count, fi_addr_t destination,
			     uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op operation)
{
	return write_row(fid, ONE(buffer, count), destination, address, key, datatype, operation, NULL,
			 ENDPOINT(fid)->remote_inject_flags);
}

/* ---- fetch: the previous values are returned ---- */

static ssize_t fetch_row(struct fid_ep *fid, uint32_t form, struct elements operands,
			 struct elements compares, struct elements results, fi_addr_t destination,
			 uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op operation,
			 void *context)
{
	struct call call = {
		.form = form,
		.datatype = datatype,
		.operation = operation,
		.operands = operands,
		.compares = compares,
		.results = results,
		.context = context,
		.flags = ENDPOINT(fid)->remote_flags,
	};

	/* `results` gives the count, because a read has no operands. */
	return submit_row(fid, destination, address, key, results, call);
}

static ssize_t atomic_readwrite(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
				void *result, void *result_descriptor, fi_addr_t destination,
				uint64_t address, uint64_t key, enum fi_datatype datatype,
				enum fi_op operation, void *context)
{
	(void)descriptor;
	(void)result_descriptor;
	return fetch_row(fid, ATOMIC_FETCH, ONE(buffer, count), NOTHING, ONE(result, count), destination,
			 address, key, datatype, operation, context);
}

static ssize_t atomic_readwritev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
				 size_t count, struct fi_ioc *results, void **result_descriptors,
				 size_t result_count, fi_addr_t destination, uint64_t address, uint64_t key,
				 enum fi_datatype datatype, enum fi_op operation, void *context)
{
	(void)descriptors;
	(void)result_descriptors;
	return fetch_row(fid, ATOMIC_FETCH, SEVERAL(operands, count), NOTHING, SEVERAL(results, result_count),
			 destination, address, key, datatype, operation, context);
}

static ssize_t atomic_readwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *message,
				   struct fi_ioc *results, void **result_descriptors, size_t result_count,
				   uint64_t flags)
{
	(void)result_descriptors;
	return submit_message(fid, message, ATOMIC_FETCH, NOTHING, SEVERAL(results, result_count), flags);
}

/* ---- compare ---- */

static ssize_t atomic_compwrite(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
				const void *compare, void *compare_descriptor, void *result,
				void *result_descriptor, fi_addr_t destination, uint64_t address,
				uint64_t key, enum fi_datatype datatype, enum fi_op operation, void *context)
{
	(void)descriptor;
	(void)compare_descriptor;
	(void)result_descriptor;
	return fetch_row(fid, ATOMIC_COMPARE, ONE(buffer, count), ONE(compare, count), ONE(result, count),
			 destination, address, key, datatype, operation, context);
}

static ssize_t atomic_compwritev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
				 size_t count, const struct fi_ioc *compares, void **compare_descriptors,
				 size_t compare_count, struct fi_ioc *results, void **result_descriptors,
				 size_t result_count, fi_addr_t destination, uint64_t address, uint64_t key,
				 enum fi_datatype datatype, enum fi_op operation, void *context)
{
	(void)descriptors;
	(void)compare_descriptors;
	(void)result_descriptors;
	return fetch_row(fid, ATOMIC_COMPARE, SEVERAL(operands, count), SEVERAL(compares, compare_count),
			 SEVERAL(results, result_count), destination, address, key, datatype, operation,
			 context);
}

static ssize_t atomic_compwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *message,
				   const struct fi_ioc *compares, void **compare_descriptors,
				   size_t compare_count, struct fi_ioc *results, void **result_descriptors,
				   size_t result_count, uint64_t flags)
{
	(void)compare_descriptors;
	(void)result_descriptors;
	return submit_message(fid, message, ATOMIC_COMPARE, SEVERAL(compares, compare_count),
			      SEVERAL(results, result_count), flags);
}

/* ---- queries ---- */

static int valid(uint32_t datatype, uint32_t operation, uint32_t form, size_t *count)
{
	if (!atomic_is_valid(datatype, operation, form))
		return -FI_EOPNOTSUPP;
	if (count != NULL)
		*count = WIRE_ATOMIC_BYTES / atomic_element_bytes(datatype);
	return 0;
}

static int atomic_writevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op operation,
			     size_t *count)
{
	(void)fid;
	return valid(datatype, operation, ATOMIC_BASE, count);
}

static int atomic_readwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op operation,
				 size_t *count)
{
	(void)fid;
	return valid(datatype, operation, ATOMIC_FETCH, count);
}

static int atomic_compwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op operation,
				 size_t *count)
{
	(void)fid;
	return valid(datatype, operation, ATOMIC_COMPARE, count);
}

int atomic_query(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op operation,
		 struct fi_atomic_attr *attributes, uint64_t flags)
{
	uint32_t form = ATOMIC_BASE;

	(void)domain;
	if ((flags & FI_FETCH_ATOMIC) != 0 && (flags & FI_COMPARE_ATOMIC) != 0)
		return -FI_EINVAL;
	/* An atomic cannot target a tagged buffer. */
	if ((flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)) != 0)
		return -FI_EOPNOTSUPP;
	if (flags & FI_FETCH_ATOMIC)
		form = ATOMIC_FETCH;
	else if (flags & FI_COMPARE_ATOMIC)
		form = ATOMIC_COMPARE;
	int result = valid(datatype, operation, form, &attributes->count);
	if (result == 0)
		attributes->size = atomic_element_bytes(datatype);
	return result;
}

struct fi_ops_atomic atomic_operations = {
	.size = sizeof(struct fi_ops_atomic),
	.write = atomic_write,
	.writev = atomic_writev,
	.writemsg = atomic_writemsg,
	.inject = atomic_inject,
	.readwrite = atomic_readwrite,
	.readwritev = atomic_readwritev,
	.readwritemsg = atomic_readwritemsg,
	.compwrite = atomic_compwrite,
	.compwritev = atomic_compwritev,
	.compwritemsg = atomic_compwritemsg,
	.writevalid = atomic_writevalid,
	.readwritevalid = atomic_readwritevalid,
	.compwritevalid = atomic_compwritevalid,
};
