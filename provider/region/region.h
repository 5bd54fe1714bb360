/* SPDX-License-Identifier: BSD-3-Clause */
/* region.h - a mapped and checked region, and the offsets of its parts. */
#ifndef VICINAL_REGION_REGION_H
#define VICINAL_REGION_REGION_H

#include <limits.h>
#include <stdint.h>

#include "region/layout.h"

/* One line for the user: what is wrong, and the remedy. */
struct region_error {
	char text[PATH_MAX + 256];
};

/* The PCI devices in sysfs, among them a guest's ivshmem devices. */
#define PCI_DEVICES "/sys/bus/pci/devices"

/* What this process maps. Other members may map the same region in another way. */
enum region_kind {
	REGION_FILE, /* a file on tmpfs or hugetlbfs, or the memory of a broker: members share a kernel
			and its locks */
	REGION_PCI,  /* an ivshmem BAR: members are in different guests */
	REGION_DAX,  /* /dev/dax: members are in different guests, or on hosts that share memory (CXL) */
};

struct doorbell;

/*
 * A mapped region. The geometry was read from the header once, checked, and is private since then,
 * so no later write of a peer can move a bound.
 */
struct region {
	unsigned char *base;
	size_t bytes;
	size_t offset; /* file offset of `base`: see dax.h */
	uint64_t id[2];
	uint64_t section_bytes; /* the heap included */
	uint64_t heap_bytes;
	uint64_t sections_offset;
	uint32_t members;
	bool sparse_heaps;
	enum region_kind kind;
	bool brokered; /* `path` is the socket of a broker, which handed out the memory: see broker.h */
	int fd;
	atomic_uint holds;         /* calls of region_detach() to come before the call that unmaps */
	struct doorbell *doorbell; /* NULL: no member here receives interrupts; see doorbell.h */
	bool lost;             /* this is a forked child, and the mapping is private: region_after_fork() */
	bool left;             /* all members of this mapping have left, and it is private: region_leave() */
	bool discovered;       /* the user named no region: region_discover() found this one */
	bool slow_allowed;     /* accepted whatever member_measure() says */
	struct member *joined; /* members that joined through this mapping: see leave.h */
	atomic_bool cut;       /* the file was truncated, and private zeros have replaced it: see guard.h */
	/* Called with one line for the user when a call takes long. May be NULL. */
	void (*notice)(const char *text);
	char name[PATH_MAX]; /* as given: file:PATH, socket:PATH, pci:ADDRESS or dax:PATH */
	char path[PATH_MAX]; /* what was opened, or the broker's socket */
};

/*
 * The name of a private region of one mapping: for endpoints that have no region, and reach all
 * peers over the network. The endpoints of one domain share it.
 */
#define REGION_PRIVATE "private"
#define REGION_PRIVATE_MEMBERS 32U
#define REGION_PRIVATE_SECTION (1024U * 1024U)

/*
 * Map the region called `name` (file:PATH, socket:PATH, pci:ADDRESS, dax:PATH or REGION_PRIVATE) and
 * check its header. Writes nothing to it. Returns 0 and a region for region_detach(), or a negative errno and
 * a text in `error`; -ENODATA if the memory holds something else or nothing.
 */
int region_attach(const char *name, struct region **region, struct region_error *error);
/* The same, but a broker must answer within `milliseconds`. No other kind of region waits. */
int region_attach_within(const char *name, uint32_t milliseconds, struct region **region,
			 struct region_error *error);
void region_detach(struct region *region);
/* Keep the mapping until one more call of region_detach(). */
void region_hold(struct region *region);

/*
 * In a forked child: makes the mapping of a file private, so that no other process sees later
 * writes. The mapping of a device stays shared.
 */
void region_after_fork(struct region *region);

/*
 * Find a region if the user named none: first an ivshmem device whose BAR begins with a region's header,
 * then such a /dev/dax, then the well-known files. Devices with other contents are skipped. Devices
 * of one kind are tried in the order of their names. Writes the region's name. Returns 0; -ENODEV
 * if there is none; -ENODATA if there is none, but an ivshmem device that could hold one; or
 * another negative errno if a region exists but cannot be used. Each error has a text.
 */
int region_discover(char name[PATH_MAX], struct region_error *error);

/* Check the header at `base`, in a mapping of `bytes` bytes, and fill in the geometry. */
int region_check_header(const struct region_header *header, size_t bytes, struct region *region,
			struct region_error *error);

/*
 * Write a new region's header and slot table into `bytes` zeroed bytes at `base`. For tests and
 * fuzzers; users run `vicinal region create`, which writes the same. Returns 0, or -EINVAL if a
 * bound of layout.h is exceeded.
 */
int region_format(void *base, size_t bytes, uint32_t members, uint64_t section_bytes, const uint64_t id[2]);
/* The same with heaps: the last `heap_bytes` bytes of the `section_bytes` bytes of each member. */
int region_format_heaps(void *base, size_t bytes, uint32_t members, uint64_t section_bytes,
			uint64_t heap_bytes, const uint64_t id[2]);

/* The length of a region with this geometry. `section_bytes` includes the heap. */
static inline size_t region_size(uint32_t members, uint64_t section_bytes)
{
	return REGION_SECTIONS_OFFSET(members) + members * section_bytes;
}

int region_fail(struct region_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* `slot` must be below region->members in all functions below. */
static inline struct member_slot *region_slot(const struct region *region, uint32_t slot)
{
	return (struct member_slot *)(void *)(region->base + REGION_SLOTS_OFFSET) + slot;
}

static inline struct member_verdict *region_verdict(const struct region *region, uint32_t slot)
{
	return (struct member_verdict *)(void *)(region->base + REGION_VERDICTS_OFFSET(region->members)) +
	       slot;
}

/* Did the host's manager see the member (slot, epoch) end? */
static inline bool region_saw_end(const struct region *region, uint32_t slot, uint32_t epoch)
{
	return shared_acquire_u64(&region_verdict(region, slot)->verdict) == ((uint64_t)epoch << 32 | 1);
}

static inline unsigned char *region_section(const struct region *region, uint32_t slot)
{
	return region->base + region->sections_offset + slot * region->section_bytes;
}

static inline struct section_header *section_header(const struct region *region, uint32_t slot)
{
	return (struct section_header *)(void *)region_section(region, slot);
}

/* The section offset where the arena ends and the heap begins. */
static inline uint64_t section_arena_end(const struct region *region)
{
	return region->section_bytes - region->heap_bytes;
}

/* The word in the section of `owner` by which `ringer` wakes the owner. */
static inline shared_u32 *section_doorbell(const struct region *region, uint32_t owner, uint32_t ringer)
{
	return (shared_u32 *)(void *)(region_section(region, owner) + SECTION_DOORBELLS_OFFSET) + ringer;
}

static inline struct credit_line *section_credit(const struct region *region, uint32_t receiver,
						 uint32_t sender)
{
	return (struct credit_line *)(void *)(region_section(region, receiver) +
					      SECTION_CREDITS_OFFSET(region->members)) +
	       sender;
}

static inline struct connection_line *section_connection(const struct region *region, uint32_t sender,
							 uint32_t receiver)
{
	return (struct connection_line *)(void *)(region_section(region, sender) +
						  SECTION_CONNECTIONS_OFFSET(region->members)) +
	       receiver;
}

/* `index` must be below REGION_TRANSFERS. */
static inline struct transfer_line *section_transfer(const struct region *region, uint32_t owner,
						     uint32_t index)
{
	return (struct transfer_line *)(void *)(region_section(region, owner) +
						SECTION_TRANSFERS_OFFSET(region->members)) +
	       index;
}

/* `index` must be below REGION_NETWORK_LINES. */
static inline struct network_line *section_network(const struct region *region, uint32_t owner,
						   uint32_t index)
{
	return (struct network_line *)(void *)(region_section(region, owner) +
					       SECTION_NETWORK_OFFSET(region->members)) +
	       index;
}

/*
 * `length` bytes at `offset` in a member's section, or NULL unless all of them lie in the section.
 * `offset` and `length` may come from a peer.
 */
static inline shared_bytes *section_view(const struct region *region, uint32_t slot, uint64_t offset,
					 uint64_t length)
{
	if (offset > region->section_bytes || length > region->section_bytes - offset)
		return NULL;
	return (shared_bytes *)(region_section(region, slot) + offset);
}

#endif
