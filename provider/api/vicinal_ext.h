/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vicinal_ext.h - Vicinal's extensions of libfabric's interface, for programs that use libfabric and include
 * this file. fi_vicinal(7) describes them too.
 *
 *	struct vicinal_heap_ops *heap;
 *
 *	if (fi_open_ops(&domain->fid, VICINAL_HEAP_OPS, 0, (void **)&heap, NULL) == 0)
 *		result = heap->allocate(endpoint, 1 << 20, 64, &address);
 *
 * A heap is a part of the region. Peers access buffers there directly: large messages to and from them need
 * one copy less, and remote memory access needs no request. Any member of the region can read and overwrite a
 * heap, so allocate only what all ranks of the job may see.
 */
#ifndef VICINAL_EXT_H
#define VICINAL_EXT_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stddef.h>
#include <stdint.h>

#define VICINAL_HEAP_OPS "vicinal_heap"

struct vicinal_heap_ops {
	size_t size; /* size of this struct in the provider: later fields do not exist */

	/*
	 * Allocates at least `bytes` at a multiple of `alignment`, which is a power of two. Blocks are whole
	 * pages of 4096 bytes. They may contain what this process wrote there before, never another process's
	 * data. Returns 0, or
	 *   -FI_EINVAL       `alignment` is no power of two, or a pointer is NULL
	 *   -FI_EOPBADSTATE  the endpoint is not enabled, so it has no section in the region yet
	 *   -FI_EOPNOTSUPP   the region was created without heaps
	 *   -FI_ENOMEM       this endpoint's heap or the region's file system is full, or this is a forked
	 *                    child
	 */
	int (*allocate)(struct fid_ep *endpoint, size_t bytes, size_t alignment, void **address);

	/*
	 * Releases a block, which may belong to a closed endpoint: the endpoint's memory stays, and its
	 * member slot is held, until its last block is released or the process ends. Returns 0, or -FI_EINVAL
	 * if no block begins at `address`.
	 */
	int (*release)(void *address);

	/*
	 * Returns the size of the endpoint's heap and of its allocated blocks, in bytes. Errors as of
	 * `allocate`.
	 */
	int (*query)(struct fid_ep *endpoint, uint64_t *total, uint64_t *used);
};

#endif
