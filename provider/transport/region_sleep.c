/* SPDX-License-Identifier: BSD-3-Clause */
/* region_sleep.c - sleeping over the rings of a region, and waking sleepers. */
#include "region/doorbell.h"
#include "transport/network.h"
#include "transport/region_transport.h"

static struct section_header *own_header(const struct attachment *attachment)
{
	return section_header(attachment->region, attachment->member->slot);
}

static void publish_active(const struct attachment *attachment, bool sleeps)
{
	uint32_t words = (attachment->region->members + 63) / 64;

	for (uint32_t i = 0; i < words; i++)
		shared_store_u64(&own_header(attachment)->active[i], sleeps ? 0 : attachment->active[i]);
}

/* The ways in which a waker can wake us. 0 if members only poll from time to time. */
static uint32_t wake_flags(const struct attachment *attachment)
{
	if (doorbell_works(attachment->region->doorbell))
		return SLEEPING_INTERRUPTED;
	if (attachment->region->kind != REGION_FILE)
		return 0;
	return sleep_waits_on_many() ? SLEEPING_ON_DOORBELLS | SLEEPING_ON_WORD : SLEEPING_ON_WORD;
}

static void publish_sleeping(struct attachment *attachment)
{
	uint32_t flags =
		wake_flags(attachment) | (attachment->transport->short_of_room ? SLEEPING_FOR_ROOM : 0);

	attachment->sleeping = (attachment->sleeping / SLEEPING_STEP + 1) * SLEEPING_STEP + flags;
	shared_store_u32(&own_header(attachment)->sleeping, attachment->sleeping);
}

void transport_sleep_begin(struct transport *transport)
{
	bool files = false;
	bool interrupted = false;

	if (transport->sleepers++ > 0)
		return;
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		struct attachment *attachment = &transport->attachments[i];
		if (!attachment_holds_slot(attachment))
			continue;
		publish_active(attachment, true);
		publish_sleeping(attachment);
		files = files || attachment->region->kind == REGION_FILE;
		interrupted = interrupted || doorbell_works(attachment->region->doorbell);
	}
	/* Pairs with no fence in transport_wake(): it is for senders, which have no fence there. */
	transport->ordered = !files || sleep_order_senders();
	shared_fence_full();
	if (interrupted) /* the same, for senders that our barrier does not reach */
		sleep_settle();
}

void transport_sleep_end(struct transport *transport)
{
	/* The transport may have been closed and opened again while a thread slept. */
	if (transport->sleepers == 0 || --transport->sleepers > 0)
		return;
	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		const struct attachment *attachment = &transport->attachments[i];
		if (!attachment_holds_slot(attachment))
			continue;
		shared_store_u32(&own_header(attachment)->sleeping, 0);
		publish_active(attachment, false);
	}
}

static bool is_ordered(const struct attachment *attachment, uint32_t slot)
{
	return shared_load_u32(&section_header(attachment->region, slot)->membarrier) == 1;
}

/*
 * Does the member wake us when it rings: through its kernel, if it is ours, or by the doorbell of
 * the device?
 */
static bool wakes_us(const struct attachment *attachment, uint32_t slot)
{
	if (attachment->region->doorbell == NULL)
		return is_ordered(attachment, slot);
	return (shared_load_u64(&section_header(attachment->region, slot)->interrupt) & INTERRUPTIBLE) != 0;
}

/* Find members that do not: any of them may ring without waking us. */
static void survey_strangers(struct attachment *attachment)
{
	uint64_t now = monotonic_now();

	if (now < attachment->next_survey)
		return;
	attachment->next_survey = now + LIVENESS_INTERVAL;
	attachment->strangers = false;
	for (uint32_t slot = 0; slot < attachment->region->members && !attachment->strangers; slot++)
		attachment->strangers =
			(uint32_t)shared_load_u64(&region_slot(attachment->region, slot)->claim) ==
				SLOT_JOINED &&
			!wakes_us(attachment, slot);
}

/* Watch the attachment's own word. Returns whether every ring is certain to be noticed. */
static bool watch_attachment(struct attachment *attachment, struct sleep_watch *watch)
{
	const struct transport *transport = attachment->transport;
	struct doorbell *doorbell = attachment->region->doorbell;

	if (attachment->evicted || (doorbell == NULL && attachment->region->kind != REGION_FILE))
		return false;
	survey_strangers(attachment);
	if (doorbell != NULL) {
		sleep_on_private(watch, &doorbell->rung, attachment->interrupts_seen);
		return doorbell_works(doorbell) && !attachment->strangers;
	}
	sleep_on_shared(watch, &own_header(attachment)->sleeping,
			transport->sleepers > 0 ? attachment->sleeping : 0);
	return !attachment->strangers;
}

static bool is_sender(const struct attachment *attachment, uint32_t slot)
{
	const struct peer *alias = attachment->aliases != NULL ? attachment->aliases[slot] : NULL;
	const struct peer *peer = attachment->base != TRANSPORT_NO_BASE
					  ? attachment->transport->peers[attachment->base + slot]
					  : NULL;

	return (peer != NULL && peer->attachment == attachment && peer->receiving) ||
	       (alias != NULL && alias->receiving);
}

/*
 * Watch the doorbells of members that send to us, or of all other members. Returns whether barriers
 * reach all senders.
 */
static bool watch_doorbells(const struct attachment *attachment, struct sleep_watch *watch, bool senders)
{
	bool certain = true;

	if (attachment->evicted || attachment->region->kind != REGION_FILE)
		return certain;
	for (uint32_t slot = 0; slot < attachment->region->members; slot++) {
		if (is_sender(attachment, slot) != senders)
			continue;
		certain = certain && (!senders || is_ordered(attachment, slot));
		sleep_on_shared(watch, section_doorbell(attachment->region, attachment->member->slot, slot),
				attachment->doorbells_seen[slot]);
	}
	return certain;
}

bool transport_sleep_watch(struct transport *transport, struct sleep_watch *watch)
{
	/* Frames over the network wake no sleeper. */
	bool certain = transport->ordered && sleep_waits_on_many() && !transport->short_of_room &&
		       !network_has_peers(transport);

	/* A thread may wait with others before any of them sleeps: see api/watch.c. */
	for (uint32_t i = 0; i < transport->attachment_count && transport->sleepers > 0; i++)
		if (!transport->attachments[i].evicted)
			publish_sleeping(&transport->attachments[i]);
	/*
	 * Pairs with the fence in transport_ring_doorbell(): either the ringer sees that we sleep,
	 * or we see its ring.
	 */
	shared_fence_full();
	transport->short_of_room = false;
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		certain = watch_attachment(&transport->attachments[i], watch) && certain;
	if (!sleep_waits_on_many())
		return false;
	/* Members that send to us come first, in case not all words fit. */
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		certain = watch_doorbells(&transport->attachments[i], watch, true) && certain;
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		(void)watch_doorbells(&transport->attachments[i], watch, false);
	return certain && watch->missing == 0;
}

/*
 * A sleeper is woken once for each sleep: then it polls, or sees at its next attempt to sleep that
 * its doorbell changed.
 */
static void wake(struct peer *peer, uint32_t sleeping)
{
	const struct region *region = peer->attachment->region;
	bool woken = false;

	if ((sleeping & SLEEPING_INTERRUPTED) != 0 && region->doorbell != NULL)
		woken = doorbell_ring(region->doorbell,
				      shared_load_u64(&section_header(region, peer->slot)->interrupt));
	if ((sleeping & SLEEPING_ON_DOORBELLS) != 0)
		woken = sleep_wake_shared(peer->doorbell);
	if (!woken && (sleeping & SLEEPING_ON_WORD) != 0)
		woken = sleep_wake_shared(peer->sleeping_word);
	if (woken)
		peer->woken = sleeping;
}

void transport_ring_doorbell(struct peer *peer)
{
	shared_release_u32(peer->doorbell, ++peer->doorbell_count);
	/* Pairs with the fence in transport_sleep_watch(). */
	shared_fence_full();
	uint32_t sleeping = shared_load_u32(peer->sleeping_word);
	if (sleeping != 0 && sleeping != peer->woken)
		wake(peer, sleeping);
}

__attribute__((cold, noinline)) void transport_ring(struct peer *peer)
{
	if (peer->network != NULL)
		network_ship(peer);
	else
		transport_ring_doorbell(peer);
}

void transport_wake_for_room(struct transport *transport)
{
	for (uint32_t i = 0; i < transport->hot_count; i++) {
		struct peer *peer = transport->hot[i].peer;
		uint32_t sleeping = shared_load_u32(peer->sleeping_word);
		if (__builtin_expect((sleeping & SLEEPING_FOR_ROOM) == 0 || sleeping == peer->woken, 1))
			continue;
		ring_publish(&peer->in);
		transport_ring_doorbell(
			peer); /* for its ring in the region, on whichever transport we send */
	}
}
