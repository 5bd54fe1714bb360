/* SPDX-License-Identifier: BSD-3-Clause */
/* liveness.c - noticing that a member died. */
#include "region/member.h"

#include <fcntl.h>
#include <unistd.h>

/* Does anybody hold the lock on this slot? The kernel drops it when its holder dies. */
static bool lock_held(int fd, uint32_t slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};

	/* If the kernel will not say, nobody is declared dead. */
	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool heart_stopped(const struct section_header *header, struct pulse *pulse, uint64_t now,
			  uint64_t timeout)
{
	uint64_t heartbeat = shared_load_u64(&header->heartbeat);

	if (pulse->since == 0 || heartbeat != pulse->heartbeat) {
		pulse->heartbeat = heartbeat;
		pulse->since = now;
		return false;
	}
	return now - pulse->since > timeout;
}

enum member_state member_observe(const struct member *self, uint32_t slot, uint32_t epoch,
				 struct pulse *pulse, uint64_t now, uint64_t timeout)
{
	const struct region *region = self->region;
	const struct section_header *header = section_header(region, slot);
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);

	if (claim != ((uint64_t)epoch << 32 | SLOT_JOINED))
		return (uint32_t)(claim >> 32) == epoch ? MEMBER_LEFT : MEMBER_DIED;
	/* The manager's word counts before all others: it saw the VM or process end. */
	if (region_saw_end(region, slot, epoch))
		return MEMBER_DIED;
	if (slot == self->slot)
		return MEMBER_ALIVE;
	switch (shared_load_u32(&header->liveness)) {
	case LIVENESS_LOCK:
		/* Its lock says nothing to us if it locks in another kernel. */
		return region->kind == REGION_FILE && !lock_held(self->lock_fd, slot) ? MEMBER_DIED
										      : MEMBER_ALIVE;
	default:
		return heart_stopped(header, pulse, now, timeout) ? MEMBER_DIED : MEMBER_ALIVE;
	}
}
