/* SPDX-License-Identifier: BSD-3-Clause */
/* extension.c - the heap of an endpoint, for programs that call fi_open_ops() and for malloc(). */
#include "api/extension.h"

#include "api/vicinal_ext.h"
#include "region/heap_offer.h"
#include "region/region_offer.h"

/* ---- programs that use vicinal_ext.h ---- */

static int find_heap(struct fid_ep *fid, struct heap **heap)
{
	const struct endpoint *endpoint = (struct endpoint *)(void *)fid;

	if (endpoint == NULL || fid->fid.fclass != FI_CLASS_EP)
		return -FI_EINVAL;
	if (endpoint->messenger == NULL)
		return -FI_EOPBADSTATE;
	*heap = endpoint->messenger->transport->heap;
	return *heap != NULL ? 0 : -FI_EOPNOTSUPP;
}

static int allocate(struct fid_ep *endpoint, size_t bytes, size_t alignment, void **address)
{
	struct heap *heap = NULL;

	if (address == NULL || alignment == 0 || (alignment & (alignment - 1)) != 0)
		return -FI_EINVAL;
	int result = find_heap(endpoint, &heap);
	if (result != 0)
		return result;
	*address = heap_allocate(heap, bytes, alignment, false);
	return *address != NULL ? 0 : -FI_ENOMEM;
}

static int release(void *address)
{
	return heap_release(address) ? 0 : -FI_EINVAL;
}

static int query(struct fid_ep *endpoint, uint64_t *total, uint64_t *used)
{
	struct heap *heap = NULL;

	if (total == NULL || used == NULL)
		return -FI_EINVAL;
	int result = find_heap(endpoint, &heap);
	if (result != 0)
		return result;
	*total = heap->bytes;
	*used = heap_used(heap);
	return 0;
}

static struct vicinal_heap_ops heap_operations = {
	.size = sizeof(struct vicinal_heap_ops),
	.allocate = allocate,
	.release = release,
	.query = query,
};

int extension_open(const char *name, uint64_t flags, void **operations)
{
	if (name == NULL || operations == NULL || flags != 0)
		return -FI_EINVAL;
	if (strcmp(name, VICINAL_HEAP_OPS) != 0)
		return -FI_ENOSYS;
	*operations = &heap_operations;
	return 0;
}

/* ---- programs with libvicinal-heap.so preloaded ---- */

void extension_offer_heap(const struct messenger *messenger)
{
	static atomic_bool said;
	struct heap *heap = messenger->transport->heap;
	struct region_error error;

	if (heap == NULL) {
		if (heap_is_wanted())
			provider_notice_once(&said,
					     "libvicinal-heap.so was preloaded, and region %s has no heap: "
					     "create the region with 'vicinal region create --heap SIZE', or "
					     "do not preload the library",
					     messenger->transport->attachments[0].region->path);
		return;
	}
	int result = heap_offer(heap, parameter_heap_threshold(), &error);
	if (result == 0)
		FI_INFO(&provider, FI_LOG_EP_CTRL,
			"large allocations come from a heap of %llu bytes in the region\n",
			(unsigned long long)heap->bytes);
	else if (result != -ENOENT)
		provider_notice_once(&said, "%s", error.text);
}

/* ---- programs with libvicinal-mpi.so preloaded ---- */

void extension_offer_region(const struct messenger *messenger)
{
	static atomic_bool said;
	struct heap *heap = messenger->transport->heap;
	struct region_error error;

	if (heap == NULL) {
		/* Not a notice: the library is preloaded by default, and collectives work without it. */
		if (region_is_wanted())
			FI_INFO(&provider, FI_LOG_EP_CTRL,
				"region %s has no heap, so MPI's collectives do not use the region: create "
				"the "
				"region with 'vicinal region create --heap SIZE'\n",
				messenger->transport->attachments[0].region->path);
		return;
	}
	int result = region_offer(heap, messenger->transport->attachments[0].member, parameter_peer_timeout(),
				  idle_elsewhere, &error);
	if (result != 0 && result != -ENOENT && result != -EBUSY)
		provider_notice_once(&said, "%s", error.text);
}
