/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.c - atomic operations on peers' memory, and which of them there are. */
#include "api/provider.h"

#define ENDPOINT(fid) ((struct endpoint *)(void *)(fid))
#define ELEMENTS(buffer, count) (&(struct fi_ioc){(void *)(uintptr_t)(buffer), (count)})
#define PLACE(address, count, key) (&(struct fi_rma_ioc){(address), (count), (key)})

/* An atomic as the calls have it: in elements. */
struct call {
	uint32_t form; /* enum atomic_form */
	enum fi_datatype datatype;
	enum fi_op operation;
	const struct fi_ioc *operands;
	size_t operand_count;
	const struct fi_ioc *compares;
	size_t compare_count;
	const struct fi_ioc *results;
	size_t result_count;
	const struct fi_rma_ioc *places;
	size_t place_count;
	void *context;
	uint64_t flags;
};

/* A list of elements as one of bytes. Returns false if it is too long, or not `length` bytes. */
static bool in_bytes(const struct fi_ioc *elements, size_t count, size_t size, uint64_t length,
		     struct iovec *pieces)
{
	uint64_t bytes = 0;

	if (count > LIMIT_PIECES)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (elements[i].count > WIRE_ATOMIC_BYTES)
			return false;
		pieces[i] = (struct iovec){elements[i].addr, elements[i].count * size};
		bytes += pieces[i].iov_len;
	}
	return bytes == length;
}

static ssize_t submit(struct fid_ep *fid, fi_addr_t peer, const struct call *call)
{
	struct endpoint *endpoint = ENDPOINT(fid);
	size_t size = atomic_element_bytes(call->datatype);
	struct fi_rma_iov places[REMOTE_PLACES];
	struct iovec pieces[LIMIT_PIECES];
	struct iovec compares[LIMIT_PIECES];
	struct iovec results[LIMIT_PIECES];
	ssize_t result = -FI_EHOSTUNREACH;
	struct remote_request request = {
		.kind = REMOTE_ATOMIC,
		.pieces = pieces,
		.count = call->operand_count,
		.places = places,
		.place_count = call->place_count,
		.context = call->context,
		.flags = call->flags,
		.datatype = call->datatype,
		.operation = call->operation,
		.form = call->form,
		.compares = compares,
		.compare_count = call->compare_count,
		.results = results,
		.result_count = call->result_count,
	};

	if ((endpoint->capabilities & FI_ATOMIC) == 0 ||
	    !atomic_is_valid(call->datatype, call->operation, call->form))
		return -FI_EOPNOTSUPP;
	if (endpoint->messenger == NULL)
		return -FI_EOPBADSTATE;
	if (call->place_count == 0 || call->place_count > REMOTE_PLACES)
		return -FI_EINVAL;
	for (size_t i = 0; i < call->place_count; i++) {
		if (call->places[i].count > WIRE_ATOMIC_BYTES)
			return -FI_EMSGSIZE;
		places[i] = (struct fi_rma_iov){call->places[i].addr, call->places[i].count * size,
						call->places[i].key};
		request.length += places[i].len;
	}
	if (request.length > WIRE_ATOMIC_BYTES)
		return -FI_EMSGSIZE;
	bool reads = call->operation == FI_ATOMIC_READ;
	if (request.length == 0 ||
	    (!reads && !in_bytes(call->operands, call->operand_count, size, request.length, pieces)) ||
	    (call->form == ATOMIC_COMPARE &&
	     !in_bytes(call->compares, call->compare_count, size, request.length, compares)) ||
	    (call->form != ATOMIC_BASE &&
	     !in_bytes(call->results, call->result_count, size, request.length, results)))
		return -FI_EINVAL;
	domain_lock(endpoint->domain);
	request.to = endpoint_resolve(endpoint, peer);
	if (__builtin_expect(request.to != NULL, 1))
		result = messenger_remote(endpoint->messenger, &request);
	domain_unlock(endpoint->domain);
	return result;
}

static uint64_t message_flags(struct fid_ep *fid, uint64_t flags)
{
	const uint64_t kept = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
			      FI_DELIVERY_COMPLETE | FI_FENCE;

	return ENDPOINT(fid)->send_message_flags | (flags & kept);
}

/* ---- nothing comes back ---- */

static ssize_t atomic_writev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
			     size_t count, fi_addr_t destination, uint64_t address, uint64_t key,
			     enum fi_datatype datatype, enum fi_op operation, void *context)
{
	size_t elements = 0;

	(void)descriptors;
	for (size_t i = 0; i < count; i++)
		elements += operands[i].count;
	return submit(fid, destination,
		      &(struct call){
			      .form = ATOMIC_BASE,
			      .datatype = datatype,
			      .operation = operation,
			      .operands = operands,
			      .operand_count = count,
			      .places = PLACE(address, elements, key),
			      .place_count = 1,
			      .context = context,
			      .flags = ENDPOINT(fid)->remote_flags,
		      });
}

static ssize_t atomic_write(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
			    fi_addr_t destination, uint64_t address, uint64_t key, enum fi_datatype datatype,
			    enum fi_op operation, void *context)
{
	(void)descriptor;
	return atomic_writev(fid, ELEMENTS(buffer, count), NULL, 1, destination, address, key, datatype,
			     operation, context);
}

static ssize_t atomic_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *message, uint64_t flags)
{
	return submit(fid, message->addr,
		      &(struct call){
			      .form = ATOMIC_BASE,
			      .datatype = message->datatype,
			      .operation = message->op,
			      .operands = message->msg_iov,
			      .operand_count = message->iov_count,
			      .places = message->rma_iov,
			      .place_count = message->rma_iov_count,
			      .context = message->context,
			      .flags = message_flags(fid, flags),
		      });
}

static ssize_t atomic_inject(struct fid_ep *fid, const void *buffer, size_t count, fi_addr_t destination,
			     uint64_t address, uint64_t key, enum fi_datatype datatype, enum fi_op operation)
{
	return submit(fid, destination,
		      &(struct call){
			      .form = ATOMIC_BASE,
			      .datatype = datatype,
			      .operation = operation,
			      .operands = ELEMENTS(buffer, count),
			      .operand_count = 1,
			      .places = PLACE(address, count, key),
			      .place_count = 1,
			      .flags = ENDPOINT(fid)->remote_inject_flags,
		      });
}

/* ---- the values before come back ---- */

static ssize_t atomic_readwritev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
				 size_t count, struct fi_ioc *results, void **result_descriptors,
				 size_t result_count, fi_addr_t destination, uint64_t address, uint64_t key,
				 enum fi_datatype datatype, enum fi_op operation, void *context)
{
	size_t elements = 0;

	(void)descriptors;
	(void)result_descriptors;
	/* A read has no operands. */
	for (size_t i = 0; i < result_count; i++)
		elements += results[i].count;
	return submit(fid, destination,
		      &(struct call){
			      .form = ATOMIC_FETCH,
			      .datatype = datatype,
			      .operation = operation,
			      .operands = operands,
			      .operand_count = count,
			      .results = results,
			      .result_count = result_count,
			      .places = PLACE(address, elements, key),
			      .place_count = 1,
			      .context = context,
			      .flags = ENDPOINT(fid)->remote_flags,
		      });
}

static ssize_t atomic_readwrite(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
				void *result, void *result_descriptor, fi_addr_t destination,
				uint64_t address, uint64_t key, enum fi_datatype datatype,
				enum fi_op operation, void *context)
{
	(void)descriptor;
	(void)result_descriptor;
	return atomic_readwritev(fid, ELEMENTS(buffer, count), NULL, 1, ELEMENTS(result, count), NULL, 1,
				 destination, address, key, datatype, operation, context);
}

static ssize_t atomic_readwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *message,
				   struct fi_ioc *results, void **result_descriptors, size_t result_count,
				   uint64_t flags)
{
	(void)result_descriptors;
	return submit(fid, message->addr,
		      &(struct call){
			      .form = ATOMIC_FETCH,
			      .datatype = message->datatype,
			      .operation = message->op,
			      .operands = message->msg_iov,
			      .operand_count = message->iov_count,
			      .results = results,
			      .result_count = result_count,
			      .places = message->rma_iov,
			      .place_count = message->rma_iov_count,
			      .context = message->context,
			      .flags = message_flags(fid, flags),
		      });
}

/* ---- compared first ---- */

static ssize_t atomic_compwritev(struct fid_ep *fid, const struct fi_ioc *operands, void **descriptors,
				 size_t count, const struct fi_ioc *compares, void **compare_descriptors,
				 size_t compare_count, struct fi_ioc *results, void **result_descriptors,
				 size_t result_count, fi_addr_t destination, uint64_t address, uint64_t key,
				 enum fi_datatype datatype, enum fi_op operation, void *context)
{
	size_t elements = 0;

	(void)descriptors;
	(void)compare_descriptors;
	(void)result_descriptors;
	for (size_t i = 0; i < count; i++)
		elements += operands[i].count;
	return submit(fid, destination,
		      &(struct call){
			      .form = ATOMIC_COMPARE,
			      .datatype = datatype,
			      .operation = operation,
			      .operands = operands,
			      .operand_count = count,
			      .compares = compares,
			      .compare_count = compare_count,
			      .results = results,
			      .result_count = result_count,
			      .places = PLACE(address, elements, key),
			      .place_count = 1,
			      .context = context,
			      .flags = ENDPOINT(fid)->remote_flags,
		      });
}

static ssize_t atomic_compwrite(struct fid_ep *fid, const void *buffer, size_t count, void *descriptor,
				const void *compare, void *compare_descriptor, void *result,
				void *result_descriptor, fi_addr_t destination, uint64_t address,
				uint64_t key, enum fi_datatype datatype, enum fi_op operation, void *context)
{
	(void)descriptor;
	(void)compare_descriptor;
	(void)result_descriptor;
	return atomic_compwritev(fid, ELEMENTS(buffer, count), NULL, 1, ELEMENTS(compare, count), NULL, 1,
				 ELEMENTS(result, count), NULL, 1, destination, address, key, datatype,
				 operation, context);
}

static ssize_t atomic_compwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *message,
				   const struct fi_ioc *compares, void **compare_descriptors,
				   size_t compare_count, struct fi_ioc *results, void **result_descriptors,
				   size_t result_count, uint64_t flags)
{
	(void)compare_descriptors;
	(void)result_descriptors;
	return submit(fid, message->addr,
		      &(struct call){
			      .form = ATOMIC_COMPARE,
			      .datatype = message->datatype,
			      .operation = message->op,
			      .operands = message->msg_iov,
			      .operand_count = message->iov_count,
			      .compares = compares,
			      .compare_count = compare_count,
			      .results = results,
			      .result_count = result_count,
			      .places = message->rma_iov,
			      .place_count = message->rma_iov_count,
			      .context = message->context,
			      .flags = message_flags(fid, flags),
		      });
}

/* ---- what there is ---- */

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
	/* Tagged buffers are no targets. */
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
