/* SPDX-License-Identifier: BSD-3-Clause */
/* liveness.c - detects that a member died. */
#include "region/member.h"

#include <fcntl.h>
#include <unistd.h>

/* Is the lock on this slot held? The kernel drops the lock when its holder dies. */
static bool lock_held(int fd, uint32_t slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};

	/* If the kernel gives no answer, the member does not count as dead. */
	return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/*
 * Did the heartbeat change since the last check? False at the first check, because the answer is
 * unknown.
 */
static bool heart_beat(const struct section_header *header, struct last_heartbeat *last_heartbeat,
		       uint64_t now)
{
	uint64_t heartbeat = shared_load_u64(&header->heartbeat);
	bool first = last_heartbeat->since == 0;

	if (!first && heartbeat == last_heartbeat->heartbeat)
		return false;
	last_heartbeat->heartbeat = heartbeat;
	last_heartbeat->since = now;
	return !first;
}

enum member_state member_check_heartbeat(const struct member *self, uint32_t slot, uint32_t epoch,
					 struct last_heartbeat *last_heartbeat, uint64_t now,
					 uint64_t timeout)
{
	const struct region *region = self->region;
	const struct section_header *header = section_header(region, slot);
	uint64_t claim = shared_acquire_u64(&region_slot(region, slot)->claim);

	if (claim != ((uint64_t)epoch << 32 | SLOT_JOINED))
		return (uint32_t)(claim >> 32) == epoch ? MEMBER_LEFT : MEMBER_DIED;
	/*
	 * The manager's verdict has priority over all other signs, because the manager saw the VM
	 * or process end.
	 */
	if (region_saw_end(region, slot, epoch))
		return MEMBER_DIED;
	if (slot == self->slot)
		return MEMBER_ALIVE;
	bool beat = heart_beat(header, last_heartbeat, now);
	switch (shared_load_u32(&header->liveness)) {
	case LIVENESS_LOCK:
		/* A lock in another kernel says nothing here. */
		return beat || region->kind != REGION_FILE ? MEMBER_ALIVE : MEMBER_QUIET;
	default:
		return now - last_heartbeat->since > timeout ? MEMBER_DIED : MEMBER_ALIVE;
	}
}

enum member_state member_observe(const struct member *self, uint32_t slot, uint32_t epoch,
				 struct last_heartbeat *last_heartbeat, uint64_t now, uint64_t timeout)
{
	enum member_state state = member_check_heartbeat(self, slot, epoch, last_heartbeat, now, timeout);

	if (state == MEMBER_QUIET)
		return lock_held(self->lock_fd, slot) ? MEMBER_ALIVE : MEMBER_DIED;
	return state;
}

void member_beat(struct member *self)
{
	/*
	 * If there is a heartbeat thread, only that thread writes the word. A forked child has
	 * neither thread nor lock.
	 */
	if (!self->beating && self->lock_fd >= 0)
		shared_store_u64(&section_header(self->region, self->slot)->heartbeat, ++self->beats);
}

void member_publish_death(const struct member *self, uint32_t slot, uint32_t epoch)
{
	shared_store_u64(&section_header(self->region, self->slot)->death_notice,
			 (uint64_t)epoch << 32 | slot);
}

bool member_says_dead(const struct region *region, uint32_t slot, uint32_t *dead_slot, uint32_t *dead_epoch)
{
	uint64_t word = shared_load_u64(&section_header(region, slot)->death_notice);

	*dead_slot = (uint32_t)word;
	*dead_epoch = (uint32_t)(word >> 32);
	return word != 0 && *dead_slot < region->members;
}
