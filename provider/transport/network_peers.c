/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * network_peers.c - the transport over the network: opening, closing, and peers that are created,
 * fail and leave.
 */
#include "region/route.h"
#include "transport/network_transport.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

/* After a frame, this many polls also poll the network. Chosen without tuning. */
#define PATIENCE 4096U
/*
 * While peers may be reading our memory, the core reports nothing, but it makes progress only if it
 * is polled. So the patience above is renewed this many times: a read of 4 MiB takes 3 ms over tcp.
 * Chosen for that read; a gain was not measurable above the machine's noise.
 */
#define WAITS_FOR_READS 256U
/*
 * A poll of the core is one or two system calls, which take longer than 64 polls of a region's
 * rings. So while messages come through the region, the core is polled by the clock: at the first
 * interval if its last frame is recent, otherwise so that polling takes a hundredth of the time,
 * within the bounds below. Reading the clock costs as much as a few polls. With 50 us, and a clock
 * read every 64 polls, messages through the region took 2 to 6 % longer: docs/decisions/0011
 */
#define BUSY_NANOSECONDS 10000U
#define POLLS_SHARE 100U
#define IDLE_NANOSECONDS_MIN 50000U
#define IDLE_NANOSECONDS_MAX 500000U
#define POLLS_PER_CLOCK 512U
/*
 * An endpoint without network peers checks for a first contact at this interval. The check takes
 * 0.4 us if there is none (recv of an empty socket, best of 200 times 1000 at real-time priority);
 * this many polls of an idle endpoint take 0.2 ms.
 */
#define POLLS_PER_CONTACT 4096U
/* The region is quiet if its rings were empty for this many polls. */
#define QUIET_POLLS 256U

/* ---- opening and closing ---- */

/* Not from the application's malloc(), which may place it in a heap of the region. */
static void *reserve(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void give_back(void *memory, size_t bytes)
{
	if (memory != NULL)
		(void)munmap(memory, bytes);
}

static size_t buffers_bytes(void)
{
	return NETWORK_BUFFERS * sizeof(struct frame_in);
}

static size_t frames_bytes(void)
{
	return NETWORK_FRAMES * sizeof(struct frame_out);
}

/* A ring to a peer, and a frame that only this peer may use. */
static size_t ring_bytes(void)
{
	return NETWORK_RING_SLOTS * sizeof(struct ring_slot) + sizeof(struct frame_out);
}

/* The slots of a frame, and a line for credit that is never read. */
static size_t scratch_bytes(void)
{
	return NETWORK_RING_SLOTS * sizeof(struct ring_slot) + sizeof(struct credit_line);
}

static const uint32_t chunks_of_class[CHUNK_CLASSES] = NETWORK_CHUNKS;

static void free_network(struct network *network)
{
	give_back(network->buffers, buffers_bytes());
	give_back(network->frames, frames_bytes());
	give_back(network->slots, scratch_bytes());
	give_back(network->chunk_memory, chunk_pool_bytes(chunks_of_class));
	free(network);
}

/* Peers in the region may be told to reach this endpoint here. */
static void publish_name(const struct member *self, const struct core_name *name)
{
	struct member_core core = {.provider = name->provider, .length = name->length, .flags = name->flags};

	memcpy(core.name, name->bytes, sizeof(core.name));
	member_publish_core(self, &core);
}

int network_open(struct transport *transport, struct core *core, struct directory *directory)
{
	struct network *network = calloc(1, sizeof(*network));

	if (network == NULL)
		return -ENOMEM;
	network->transport = transport;
	network->core = core;
	network->directory = directory;
	network->nonce = transport->attachments[0].member->nonce; /* the same in all attachments */
	network->buffers = reserve(buffers_bytes());
	network->slots = reserve(scratch_bytes());
	if (network->buffers == NULL || network->slots == NULL) {
		free_network(network);
		return -ENOMEM;
	}
	network->unread = (struct credit_line *)(void *)(network->slots + NETWORK_RING_SLOTS);
	network_keepalive_open(network);
	transport->network = network;
	for (uint32_t i = 0; i < transport->attachment_count; i++)
		publish_name(transport->attachments[i].member, &core->name);
	return 0;
}

void network_publish(const struct transport *transport, const struct member *self)
{
	if (network_is_there(transport))
		publish_name(self, &transport->network->core->name);
}

uint32_t network_index_of(const struct peer *peer)
{
	return peer->beyond->index;
}

void network_listen(struct transport *transport)
{
	struct network *network = transport->network;

	if (network->listening || network->lost)
		return;
	network->listening = true;
	for (uint32_t i = 0; i < NETWORK_BUFFERS; i++)
		(void)network_post(network, &network->buffers[i]);
}

void network_set_notice(struct transport *transport, void (*notice)(const char *text))
{
	transport->network->notice = notice;
}

const struct core_name *network_name(const struct network *network)
{
	return &network->core->name;
}

/*
 * Allocate what sending needs, at the first send. An endpoint that only listens does not need it.
 */
static int open_sending(struct network *network)
{
	if (network->frames != NULL)
		return 0;
	network->chunk_memory = reserve(chunk_pool_bytes(chunks_of_class));
	struct frame_out *frames = network->chunk_memory != NULL ? reserve(frames_bytes()) : NULL;
	if (frames == NULL)
		return -ENOMEM;
	chunk_pool_open_private(&network->chunks, network->chunk_memory, chunks_of_class);
	for (uint32_t i = NETWORK_FRAMES; i-- > 0;) {
		frames[i].operation.use = CORE_SENDS;
		frames[i].next = network->free_frames;
		network->free_frames = &frames[i];
		network->free_count++;
	}
	network->frames = frames;
	return 0;
}

static struct network_peer *peer_at(const struct transport *transport, uint32_t source)
{
	return transport->peers[source] != NULL ? transport->peers[source]->beyond : NULL;
}

void network_close(struct transport *transport)
{
	struct network *network = transport->network;

	if (network == NULL)
		return;
	/*
	 * In a forked child, the core's objects belong to the parent, and must not even be closed.
	 */
	if (!network->lost)
		network->core->close(network->core);
	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		if (peer_at(transport, source) != NULL)
			network_free_peer(peer_at(transport, source));
	}
	transport->network = NULL;
	network_keepalive_close(network);
	free_network(network);
}

void network_after_fork(struct transport *transport, const char *reason)
{
	struct network *network = transport->network;

	if (network == NULL)
		return;
	network->lost = true;
	/* Otherwise the parent would seem to live as long as the child. */
	network_keepalive_close(network);
	for (uint32_t source = transport->members; source < transport->peer_end; source++)
		if (transport->peers[source] != NULL)
			transport_fail(transport, transport->peers[source], -ECONNABORTED, reason);
}

/* ---- peers ---- */

void network_free_peer(struct network_peer *peer)
{
	network_probe_end(peer);
	network_drop_held(peer);
	give_back(peer->slots, ring_bytes());
	free(peer);
}

struct network_peer *network_new_peer(struct network *network, struct peer *peer, uint32_t index)
{
	struct network_peer *new =
		aligned_alloc(REGION_LINE, (sizeof(*new) + REGION_LINE - 1) / REGION_LINE * REGION_LINE);

	if (new == NULL)
		return NULL;
	memset(new, 0, sizeof(*new));
	new->network = network;
	new->peer = peer;
	new->index = index;
	new->returns.credit = &new->credit;
	new->heard = monotonic_now();
	new->met = new->heard;
	shared_store_u64(&new->claim, (uint64_t)NETWORK_EPOCH << 32);
	return new;
}

struct peer *network_meet(struct transport *transport, uint32_t source)
{
	struct network *network = transport->network;
	uint32_t index = source - transport->members;

	if (network == NULL || index >= network->directory->count ||
	    !core_accepts(network->core, &network->directory->identities[index].name))
		return NULL;
	if (transport->peers[source] != NULL)
		return transport->peers[source];
	struct peer *peer = transport_new_peer(transport);
	struct network_peer *new = peer != NULL ? network_new_peer(network, peer, index) : NULL;
	if (new == NULL || transport->user->added(transport->context, source) != 0) {
		free(new);
		free(peer);
		return NULL;
	}
	peer->network = new;
	peer->beyond = new;
	peer->framed = true;
	peer->source = source;
	peer->epoch = NETWORK_EPOCH;
	peer->tenure = NETWORK_EPOCH;
	peer->nonce = network->directory->identities[index].nonce;
	peer->state = network->lost ? PEER_FAILED : PEER_PRESENT;
	peer->failure = network->lost ? -ECONNABORTED : 0;
	peer->reported = network->lost;
	peer->active_word = &new->active;
	peer->active_bit = 1;
	peer->claim = &new->claim;
	peer->pool = &network->chunks;
	peer->account.credit = &new->credit;
	transport->peers[source] = peer;
	if (source >= transport->peer_end)
		transport->peer_end = source + 1;
	return peer;
}

bool network_is_there(const struct transport *transport)
{
	return transport->network != NULL && !transport->network->lost;
}

bool network_has_peers(const struct transport *transport)
{
	const struct network *network = transport->network;

	return network != NULL && (network->listening || network->directory->count > 0);
}

bool network_make_reachable(struct network_peer *to)
{
	struct network *network = to->network;
	const struct identity *identity = &network->directory->identities[to->index];

	if (to->reachable)
		return true;
	if (open_sending(network) != 0 || !network_may_reach(to))
		return false;
	to->reachable = fi_av_insert(network->core->av, identity->name.bytes, 1, &to->address, 0, NULL) == 1;
	return to->reachable;
}

int network_connect(struct peer *peer)
{
	struct network_peer *to = peer->beyond;
	struct network *network = to->network;
	uint32_t id = 0;

	if (network->lost)
		return -ECONNABORTED;
	/* Sends to a stranger may have to wait. */
	if (!network_make_reachable(to) && (network->frames == NULL || network_may_reach(to)))
		return network->frames == NULL ? -ENOMEM : -EHOSTUNREACH;
	if (to->slots == NULL)
		to->slots = reserve(ring_bytes());
	if (to->slots == NULL)
		return -ENOMEM;
	to->own = (struct frame_out *)(void *)(to->slots + NETWORK_RING_SLOTS);
	to->own->operation.use = CORE_SENDS;
	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
		id = (uint32_t)monotonic_now();
	id |= CONNECTION_OPEN;
	ring_out_open(&peer->out, to->slots, NETWORK_RING_SLOTS, &to->credit, id);
	shared_store_u64(&to->credit.consumed, (uint64_t)id << 32);
	to->shipped = 0;
	/* Nothing is outstanding: after an earlier use of the network, all chunks were returned. */
	for (uint32_t word = 0; word < CHUNK_WORDS; word++)
		shared_store_u64(&to->credit.returned[word], 0);
	to->returns = (struct chunk_returns){.credit = &to->credit};
	peer->account = (struct chunk_account){.credit = &to->credit, .connection = id};
	to->heard = monotonic_now();
	peer->sending = true;
	if (network_is_confirmed(to))
		network_first_contact(to);
	return 0;
}

static const char *reason_of(int error)
{
	switch (error) {
	case ECONNREFUSED:
		return "it is gone: no process listens at its network address";
	case EHOSTUNREACH:
	case ENETUNREACH:
	case FI_EADDRNOTAVAIL:
		return "the network does not reach it";
	case ETIMEDOUT:
		return "the network gave up: it does not answer";
	default:
		return "the network connection to it broke: it or its host died";
	}
}

void network_fail(struct network_peer *to, int error)
{
	transport_fail(to->network->transport, to->peer, -ECONNRESET, reason_of(error));
}

void network_fail_sending(struct network_peer *to, int error)
{
	if (network_is_used(to))
		network_fail(to, error);
}

bool network_is_quiet(const struct peer *peer)
{
	return peer->beyond->in_flight == 0;
}

void network_stop(struct peer *peer, bool fails_over)
{
	struct network_peer *to = peer->beyond;

	if (peer->network != NULL)
		to->shipped = peer->out.position;
	network_probe_end(to);
	network_drop_held(to);
	/* The peer may live, and wait for us to read. */
	if (!to->left && peer->failure == -EPROTO && network_is_used(to) && !fails_over)
		(void)network_send_notice(to, FRAME_REFUSE);
}

/* ---- polls ---- */

void network_stay_busy(struct network *network)
{
	network->patience = PATIENCE;
	network->waits = 0;
	if (!network->busy) {
		network->busy = true;
		network->transport->attention++;
	}
}

static bool region_is_quiet(const struct transport *transport)
{
	for (uint32_t i = 0; i < transport->hot_count; i++)
		if (transport->polls - transport->hot[i].active < QUIET_POLLS)
			return false;
	return true;
}

static uint32_t look(struct network *network)
{
	uint32_t frames = network_poll(network);

	if (frames > 0) {
		network_stay_busy(network);
	} else if (network->busy && network->backlog == NULL && --network->patience == 0) {
		if (network->grants > 0 && network->waits++ < WAITS_FOR_READS) {
			network->patience = PATIENCE;
			return 0;
		}
		network->busy = false;
		network->transport->attention--;
	}
	return frames;
}

/*
 * Post buffers once the application knows a network peer, or once a peer made first contact, which
 * the application need not know.
 */
static bool is_listening(struct transport *transport)
{
	struct network *network = transport->network;

	if (!network->listening && (network->directory->count > 0 || network_was_contacted(network)))
		network_listen(transport);
	return network->listening;
}

static void settle_interval(struct network *network, uint64_t took)
{
	uint64_t interval = took * POLLS_SHARE;

	if (interval < IDLE_NANOSECONDS_MIN)
		interval = IDLE_NANOSECONDS_MIN;
	network->interval = interval < IDLE_NANOSECONDS_MAX ? interval : IDLE_NANOSECONDS_MAX;
}

/*
 * An endpoint that polls rarely takes long to reach the number of polls, so it also checks by the
 * clock.
 */
static bool may_be_contacted(struct network *network)
{
	const struct transport *transport = network->transport;
	uint64_t now = 0;

	if (transport->polls % POLLS_PER_CONTACT == 0)
		return true;
	if (!transport->sparse)
		return false;
	now = monotonic_now();
	if (now - network->asked < IDLE_NANOSECONDS_MAX)
		return false;
	network->asked = now;
	return true;
}

uint32_t network_progress_slow(struct transport *transport, bool idle)
{
	struct network *network = transport->network;
	bool seldom = (transport->polls & 63) == 0;
	uint64_t now = 0;

	if (network->lost || (!network->busy && !transport->sparse && !seldom))
		return 0;
	if (!network_has_peers(transport) && !may_be_contacted(network))
		return 0;
	if (!is_listening(transport))
		return 0;
	if (!idle || !region_is_quiet(transport) || (transport->sparse && !network->busy)) {
		if (!transport->sparse &&
		    (!seldom || (!network->busy && transport->polls % POLLS_PER_CLOCK != 0)))
			return 0;
		now = monotonic_now();
		if (now - network->polled < (network->busy ? BUSY_NANOSECONDS : network->interval))
			return 0;
		network->polled = now;
	}
	uint32_t frames = look(network);
	if (now != 0 && !network->busy)
		settle_interval(network, monotonic_now() - now);
	return frames;
}

uint32_t network_progress_full(struct transport *transport)
{
	return transport->network->lost || !is_listening(transport) ? 0 : look(transport->network);
}

/*
 * ---- liveness and closing ----
 */

void network_check(struct transport *transport, uint64_t now)
{
	struct network *network = transport->network;

	if (network == NULL || network->lost)
		return;
	if (network->listening)
		network_keepalive_take(network);
	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		struct network_peer *peer = peer_at(transport, source);
		if (peer != NULL && peer->owes_left)
			peer->owes_left = !network_send_notice(peer, FRAME_LEFT);
		if (peer != NULL && peer->spoke) {
			peer->spoke = false;
			peer->heard_once = true;
			peer->heard = now;
		}
		if (peer == NULL || peer->peer->state == PEER_FAILED || !network_is_used(peer))
			continue;
		if (peer->owes_region)
			network_answer(peer);
		network_tell_taken(peer);
		network_check_gap(peer, transport->timeout);
		network_check_stranger(peer, now, transport->timeout);
		if (peer->owes_detach)
			network_detach_again(peer);
		network_probe(peer, &network->directory->identities[peer->index].name, now,
			      transport->timeout);
	}
}

bool network_drained(struct transport *transport)
{
	struct network *network = transport->network;
	bool drained = true;

	if (network == NULL || network->lost)
		return true;
	for (uint32_t source = transport->members; source < transport->peer_end; source++) {
		struct network_peer *peer = peer_at(transport, source);
		if (peer == NULL || peer->peer->state == PEER_FAILED || peer->left || !peer->peer->sending ||
		    peer->peer->network == NULL || transport_is_failing_over(peer->peer))
			continue;
		if (peer->sequence == 0 || peer->shipped != peer->peer->out.position) {
			drained = false;
			continue;
		}
		if (!peer->leave_sent)
			peer->leave_sent = network_send_notice(peer, FRAME_LEAVE);
		drained = drained && peer->left;
	}
	return drained;
}
