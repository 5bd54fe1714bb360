/* SPDX-License-Identifier: BSD-3-Clause */
/* region_sleep.c - going to sleep over the rings of a region, and waking who does. */
#include "path/network.h"
#include "path/region_path.h"

static struct section_header *own_header(const struct path *path)
{
	return section_header(path->region, path->member->slot);
}

static void publish_active(const struct path *path, bool sleeps)
{
	uint32_t words = (path->region->members + 63) / 64;

	for (uint32_t i = 0; i < words; i++)
		shared_store_u64(&own_header(path)->active[i], sleeps ? 0 : path->active[i]);
}

/* How a waker can reach us: nothing, where members look by themselves now and then. */
static uint32_t ways_to_wake(const struct path *path)
{
	if (path->interrupts != NULL)
		return SLEEPING_INTERRUPTED;
	if (path->region->kind != REGION_FILE)
		return 0;
	return sleep_waits_on_many() ? SLEEPING_ON_DOORBELLS | SLEEPING_ON_WORD : SLEEPING_ON_WORD;
}

static void publish_sleeping(struct path *path)
{
	uint32_t flags = ways_to_wake(path) | (path->short_of_room ? SLEEPING_FOR_ROOM : 0);

	path->sleeping = (path->sleeping / SLEEPING_STEP + 1) * SLEEPING_STEP + flags;
	shared_store_u32(&own_header(path)->sleeping, path->sleeping);
}

void path_sleep_begin(struct path *path)
{
	if (path->sleepers++ > 0 || path->evicted)
		return;
	publish_active(path, true);
	publish_sleeping(path);
	/* Pairs with nothing in path_wake(): it is for senders that did not pay for a fence. */
	path->ordered = path->region->kind == REGION_FILE && sleep_order_senders();
	shared_fence_full();
}

void path_sleep_end(struct path *path)
{
	/* A thread may have begun on a path that was closed and opened again meanwhile. */
	if (path->sleepers == 0 || --path->sleepers > 0 || path->evicted)
		return;
	shared_store_u32(&own_header(path)->sleeping, 0);
	publish_active(path, false);
}

static bool is_ordered(const struct path *path, uint32_t slot)
{
	return shared_load_u32(&section_header(path->region, slot)->membarrier) == 1;
}

/* Members that do not share our kernel: any of them may ring, and nobody would wake us. */
static void survey_strangers(struct path *path)
{
	uint64_t now = monotonic_now();

	if (now < path->next_survey)
		return;
	path->next_survey = now + LIVENESS_INTERVAL;
	path->strangers = false;
	for (uint32_t slot = 0; slot < path->region->members && !path->strangers; slot++)
		path->strangers =
			(uint32_t)shared_load_u64(&region_slot(path->region, slot)->claim) == SLOT_JOINED &&
			!is_ordered(path, slot);
}

bool path_sleep_watch(struct path *path, struct sleep_watch *watch)
{
	struct region *region = path->region;
	uint32_t self = path->member->slot;
	bool certain =
		path->ordered && sleep_waits_on_many() && !path->short_of_room && path->interrupts == NULL;

	if (path->evicted)
		return false;
	/* What comes over the network wakes nobody. */
	certain = certain && !network_has_peers(path);
	/* A thread may wait with the others before any of them sleeps: see api/watch.c. */
	if (path->sleepers > 0)
		publish_sleeping(path);
	/* Pairs with the fence in path_ring(): it sees that we sleep, or we its ring. */
	shared_fence_full();
	path->short_of_room = false;
	if (path->interrupts != NULL)
		watch->descriptor = path->interrupts->descriptor;
	if (region->kind != REGION_FILE)
		return false;
	survey_strangers(path);
	certain = certain && !path->strangers;
	sleep_on_shared(watch, &own_header(path)->sleeping, path->sleepers > 0 ? path->sleeping : 0);
	if (!sleep_waits_on_many())
		return false;
	/* Those that send to us first, should there be more than fit. */
	for (uint32_t slot = 0; slot < region->members; slot++) {
		const struct peer *peer = path->peers[slot];
		if (peer == NULL || !peer->receiving)
			continue;
		certain = certain && is_ordered(path, slot);
		sleep_on_shared(watch, section_doorbell(region, self, slot), path->doorbells_seen[slot]);
	}
	for (uint32_t slot = 0; slot < region->members; slot++) {
		const struct peer *peer = path->peers[slot];
		if (peer == NULL || !peer->receiving)
			sleep_on_shared(watch, section_doorbell(region, self, slot),
					path->doorbells_seen[slot]);
	}
	return certain && watch->missing == 0;
}

/* Who sleeps is woken once a sleep: then it looks, or sees at the next try that its doorbell changed. */
static void wake(struct peer *peer, uint32_t sleeping)
{
	bool woken = false;

	if ((sleeping & SLEEPING_INTERRUPTED) != 0 && peer->interrupts != NULL) {
		peer->interrupts->raise(peer->interrupts->context, peer->slot);
		woken = true;
	}
	if ((sleeping & SLEEPING_ON_DOORBELLS) != 0)
		woken = sleep_wake_shared(peer->doorbell);
	if (!woken && (sleeping & SLEEPING_ON_WORD) != 0)
		woken = sleep_wake_shared(peer->sleeping_word);
	if (woken)
		peer->woken = sleeping;
}

void path_ring_doorbell(struct peer *peer)
{
	shared_release_u32(peer->doorbell, ++peer->doorbell_count);
	/* Pairs with the fence in path_sleep_watch(). */
	shared_fence_full();
	uint32_t sleeping = shared_load_u32(peer->sleeping_word);
	if (sleeping != 0 && sleeping != peer->woken)
		wake(peer, sleeping);
}

__attribute__((cold, noinline)) void path_ring(struct peer *peer)
{
	if (peer->network != NULL)
		network_ship(peer);
	else
		path_ring_doorbell(peer);
}

void path_wake_for_room(struct path *path)
{
	for (uint32_t i = 0; i < path->hot_count; i++) {
		struct peer *peer = path->hot[i];
		uint32_t sleeping = shared_load_u32(peer->sleeping_word);
		if (__builtin_expect((sleeping & SLEEPING_FOR_ROOM) == 0 || sleeping == peer->woken, 1))
			continue;
		ring_publish(&peer->in);
		path_ring_doorbell(peer); /* of its ring in the region, whichever way ours goes */
	}
}
