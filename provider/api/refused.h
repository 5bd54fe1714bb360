/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refused.h - calls of libfabric's interface that the provider does not support (fi_getinfo() says so).
 *
 * libfabric calls most functions of its tables without checking for NULL. So unsupported calls exist too, and
 * return an error instead of crashing.
 */
#ifndef VICINAL_API_REFUSED_H
#define VICINAL_API_REFUSED_H

#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

/* CALL(type, name, parameters...) for each call; all return -FI_ENOSYS. */
#define REFUSED_CALLS(CALL) \
	/* of every object */ \
	CALL(int, refuse_bind, struct fid *fid, struct fid *other, uint64_t flags) \
	CALL(int, refuse_control, struct fid *fid, int command, void *argument) \
	CALL(int, refuse_ops_open, struct fid *fid, const char *name, uint64_t flags, void **operations, \
	     void *context) \
	/* connections and multicast groups */ \
	CALL(int, refuse_passive_endpoint, struct fid_fabric *fabric, struct fi_info *info, \
	     struct fid_pep **endpoint, void *context) \
	CALL(int, refuse_setname, struct fid *fid, void *address, size_t length) \
	CALL(int, refuse_getpeer, struct fid_ep *endpoint, void *address, size_t *length) \
	CALL(int, refuse_connect, struct fid_ep *endpoint, const void *address, const void *parameter, \
	     size_t length) \
	CALL(int, refuse_listen, struct fid_pep *endpoint) \
	CALL(int, refuse_accept, struct fid_ep *endpoint, const void *parameter, size_t length) \
	CALL(int, refuse_reject, struct fid_pep *endpoint, struct fid *handle, const void *parameter, \
	     size_t length) \
	CALL(int, refuse_shutdown, struct fid_ep *endpoint, uint64_t flags) \
	CALL(int, refuse_join, struct fid_ep *endpoint, const void *address, uint64_t flags, \
	     struct fid_mc **group, void *context) \
	/* scalable endpoints and shared contexts */ \
	CALL(int, refuse_scalable_endpoint, struct fid_domain *domain, struct fi_info *info, \
	     struct fid_ep **endpoint, void *context) \
	CALL(int, refuse_shared_transmit, struct fid_domain *domain, struct fi_tx_attr *attributes, \
	     struct fid_stx **shared, void *context) \
	CALL(int, refuse_shared_receive, struct fid_domain *domain, struct fi_rx_attr *attributes, \
	     struct fid_ep **endpoint, void *context) \
	CALL(int, refuse_transmit_context, struct fid_ep *endpoint, int index, \
	     struct fi_tx_attr *attributes, struct fid_ep **part, void *context) \
	CALL(int, refuse_receive_context, struct fid_ep *endpoint, int index, struct fi_rx_attr *attributes, \
	     struct fid_ep **part, void *context) \
	CALL(ssize_t, refuse_size_left, struct fid_ep *endpoint) \
	/* names that a resolver would know */ \
	CALL(int, refuse_insertsvc, struct fid_av *av, const char *node, const char *service, \
	     fi_addr_t *address, uint64_t flags, void *context) \
	CALL(int, refuse_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service, \
	     size_t services, fi_addr_t *addresses, uint64_t flags, void *context) \
	/* collectives */ \
	CALL(ssize_t, refuse_barrier, struct fid_ep *endpoint, fi_addr_t group, void *context) \
	CALL(ssize_t, refuse_barrier2, struct fid_ep *endpoint, fi_addr_t group, uint64_t flags, \
	     void *context) \
	CALL(ssize_t, refuse_broadcast, struct fid_ep *endpoint, void *buffer, size_t count, \
	     void *descriptor, fi_addr_t group, fi_addr_t root, enum fi_datatype datatype, uint64_t flags, \
	     void *context) \
	CALL(ssize_t, refuse_exchange, struct fid_ep *endpoint, const void *buffer, size_t count, \
	     void *descriptor, void *result, void *result_descriptor, fi_addr_t group, \
	     enum fi_datatype datatype, uint64_t flags, void *context) \
	CALL(ssize_t, refuse_exchange_rooted, struct fid_ep *endpoint, const void *buffer, size_t count, \
	     void *descriptor, void *result, void *result_descriptor, fi_addr_t group, fi_addr_t root, \
	     enum fi_datatype datatype, uint64_t flags, void *context) \
	CALL(ssize_t, refuse_reduction, struct fid_ep *endpoint, const void *buffer, size_t count, \
	     void *descriptor, void *result, void *result_descriptor, fi_addr_t group, \
	     enum fi_datatype datatype, enum fi_op operation, uint64_t flags, void *context) \
	CALL(ssize_t, refuse_reduction_rooted, struct fid_ep *endpoint, const void *buffer, size_t count, \
	     void *descriptor, void *result, void *result_descriptor, fi_addr_t group, fi_addr_t root, \
	     enum fi_datatype datatype, enum fi_op operation, uint64_t flags, void *context) \
	CALL(ssize_t, refuse_collective_message, struct fid_ep *endpoint, \
	     const struct fi_msg_collective *message, struct fi_ioc *results, void **descriptors, \
	     size_t count, uint64_t flags)

#define DECLARE_REFUSED(type, name, ...) type name(__VA_ARGS__);
REFUSED_CALLS(DECLARE_REFUSED)
#undef DECLARE_REFUSED

extern struct fi_ops_collective refused_collectives;

#endif
