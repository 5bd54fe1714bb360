/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c - names, address vectors of both types, and what happens to removed addresses. */
#include "harness.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void own_name(const struct side *side, unsigned char name[NAME_MAX_BYTES], size_t *length)
{
	*length = NAME_MAX_BYTES;
	SAME(fi_getname(&side->endpoint->fid, name, length), 0);
}

static void names(int rank)
{
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	unsigned char part[NAME_MAX_BYTES] = {0};
	size_t length = 0;
	size_t short_length = 5;

	side_open(&side, rank, NULL);
	own_name(&side, name, &length);
	SAME(fi_getname(&side.endpoint->fid, part, &short_length), -FI_ETOOSMALL);
	SAME(short_length, length);
	CHECK(memcmp(part, name, 5) == 0 && part[5] == 0);
	short_length = 0;
	SAME(fi_getname(&side.endpoint->fid, NULL, &short_length), -FI_ETOOSMALL);
	SAME(short_length, length);
	side_close(&side);
}

/* Look up the names of all ranks, as text as well, and truncated where there is no room. */
static void look_up(int rank, enum fi_av_type type)
{
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	unsigned char found[NAME_MAX_BYTES];
	size_t length = 0;

	side_open(&side, rank, &(struct side_options){.av_type = type});
	if (type == FI_AV_TABLE)
		for (int i = 0; i < ranks(); i++)
			SAME(side.peer[i], i);
	own_name(&side, name, &length);
	size_t found_length = sizeof(found);
	SAME(fi_av_lookup(side.av, side.peer[rank], found, &found_length), 0);
	SAME(found_length, length);
	CHECK(memcmp(found, name, length) == 0);

	memset(found, 0, sizeof(found));
	found_length = 3;
	SAME(fi_av_lookup(side.av, side.peer[rank], found, &found_length), 0);
	SAME(found_length, length);
	CHECK(memcmp(found, name, 3) == 0 && found[3] == 0);
	SAME(fi_av_lookup(side.av, 1000, found, &found_length), -FI_EINVAL);

	char text[128] = "";
	char cut[8] = "";
	size_t text_length = sizeof(text);
	size_t cut_length = sizeof(cut);
	(void)fi_av_straddr(side.av, name, text, &text_length);
	SAME(text_length, strlen(text) + 1);
	CHECK(strncmp(text, "vicinal://", 10) == 0);
	(void)fi_av_straddr(side.av, name, cut, &cut_length);
	SAME(cut_length, text_length);
	CHECK(strncmp(cut, text, 7) == 0 && cut[7] == '\0');
	side_close(&side);
}

static void table(int rank)
{
	look_up(rank, FI_AV_TABLE);
}

static void map(int rank)
{
	look_up(rank, FI_AV_MAP);
}

/* Addresses of another region and invalid addresses are told from valid ones, one by one. */
static void foreign(int rank)
{
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	unsigned char list[3 * NAME_MAX_BYTES];
	size_t length = 0;
	fi_addr_t indices[3] = {0};
	int errors[3] = {-1, -1, -1};

	side_open(&side, rank, NULL);
	own_name(&side, name, &length);
	for (int i = 0; i < 3; i++)
		memcpy(list + (size_t)i * length, name, length);
	list[length + length - 1] ^= 1; /* the end of the region's id */
	list[2 * length] ^= 1;          /* the version */
	SAME(fi_av_insert(side.av, list, 3, indices, 0, NULL), 1);
	CHECK(indices[0] != FI_ADDR_NOTAVAIL);
	CHECK(indices[1] == FI_ADDR_NOTAVAIL && indices[2] == FI_ADDR_NOTAVAIL);
	SAME(fi_av_insert(side.av, list, 3, indices, FI_SYNC_ERR, errors), 1);
	SAME(errors[0], 0);
	CHECK(errors[1] > 0 && errors[2] > 0);
	SAME(fi_av_insert(side.av, list, 0, indices, 0, NULL), 0);
	SAME(fi_av_insert(side.av, list, 1, NULL, 0, NULL), 1);

	/* An address of our region where no member is any more, or not yet. */
	memcpy(list, name, length);
	list[4] ^= 0x55; /* the epoch */
	SAME(fi_av_insert(side.av, list, 1, indices, 0, NULL), 1);
	SAME(fi_inject(side.endpoint, "x", 1, indices[0]), -FI_EHOSTUNREACH);
	/* Numbers that the vector never gave out. */
	SAME(fi_inject(side.endpoint, "x", 1, 4711), -FI_EHOSTUNREACH);
	SAME(fi_inject(side.endpoint, "x", 1, FI_ADDR_NOTAVAIL), -FI_EHOSTUNREACH);
	SAME(fi_recv(side.endpoint, list, 1, NULL, 4711, NULL), -FI_EHOSTUNREACH);
	side_close(&side);
}

static void unsupported(int rank)
{
	struct side side;
	struct fid_av *vector = NULL;
	fi_addr_t index = 0;

	side_open(&side, rank, NULL);
	CHECK(fi_av_open(side.domain, &(struct fi_av_attr){.flags = FI_READ}, &vector, NULL) < 0);
	CHECK(fi_av_open(side.domain, &(struct fi_av_attr){.name = "shared"}, &vector, NULL) < 0);
	CHECK(fi_av_open(side.domain, &(struct fi_av_attr){.rx_ctx_bits = 2}, &vector, NULL) < 0);
	SAME(fi_av_insertsvc(side.av, "localhost", "1", &index, 0, NULL), -FI_ENOSYS);
	SAME(fi_av_insertsym(side.av, "node", 2, "1", 1, &index, 0, NULL), -FI_ENOSYS);
	side_close(&side);
}

/* One message in each direction, to show that a pair of addresses works. */
static void exchange(const struct side *side, fi_addr_t peer, uint64_t tag)
{
	char received[4] = "";
	char context = 0;
	fi_addr_t source = 0;

	SAME(fi_trecv(side->endpoint, received, sizeof(received), NULL, peer, tag, 0, &context), 0);
	POST(side, fi_tinject(side->endpoint, "pong", 4, peer, tag));
	struct fi_cq_tagged_entry entry = next_completion_from(side->received, &source);
	CHECK(entry.op_context == &context && entry.len == 4 && memcmp(received, "pong", 4) == 0);
	SAME(source, peer);
}

static void removal(int rank)
{
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	size_t length = sizeof(name);
	char buffer = 0;

	side_open(&side, rank, NULL);
	fi_addr_t peer = side.peer[1 - rank];
	exchange(&side, peer, 1);
	SAME(fi_av_lookup(side.av, peer, name, &length), 0);

	/* Inserted three times: completions use the number of the newest entry. */
	fi_addr_t second = 0;
	fi_addr_t third = 0;
	SAME(fi_av_insert(side.av, name, 1, &second, 0, NULL), 1);
	CHECK(second != peer);
	exchange(&side, second, 2);
	SAME(fi_av_insert(side.av, name, 1, &third, 0, NULL), 1);
	exchange(&side, third, 6);
	/* When the newest entry is removed, the one before it is the newest. */
	SAME(fi_av_remove(side.av, &third, 1, 0), 0);
	exchange(&side, second, 7);
	/* The older number stays valid when the newer entry is removed. */
	SAME(fi_av_remove(side.av, &second, 1, 0), 0);
	SAME(fi_tsend(side.endpoint, &buffer, 1, NULL, second, 3, NULL), -FI_EHOSTUNREACH);
	SAME(fi_trecv(side.endpoint, &buffer, 1, NULL, second, 3, 0, NULL), -FI_EHOSTUNREACH);
	SAME(fi_av_lookup(side.av, second, name, &length), -FI_EINVAL);
	exchange(&side, peer, 4);
	/* Remove the last entry, and insert the peer again: everything works as before. */
	SAME(fi_av_remove(side.av, &peer, 1, 0), 0);
	SAME(fi_tsend(side.endpoint, &buffer, 1, NULL, peer, 3, NULL), -FI_EHOSTUNREACH);
	fi_addr_t again = 0;
	length = sizeof(name);
	barrier(&side);
	SAME(fi_av_insert(side.av, name, 1, &again, 0, NULL), 1);
	CHECK(again == peer || again == second || again == third); /* an index is used again */
	exchange(&side, again, 5);
	SAME(fi_av_remove(side.av, &(fi_addr_t){4711}, 1, 0), -FI_EINVAL);
	barrier(&side);
	side_close(&side);
}

/* A thousand addresses: the vector grows, and all of them stay valid. */
static void many(int rank)
{
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	size_t length = sizeof(name);
	fi_addr_t index = 0;

	side_open(&side, rank, NULL);
	SAME(fi_av_lookup(side.av, side.peer[1 - rank], name, &length), 0);
	for (int i = 0; i < 1000; i++)
		SAME(fi_av_insert(side.av, name, 1, &index, 0, NULL), 1);
	exchange(&side, index, 6);
	barrier(&side);
	side_close(&side);
}

/* The address of a former occupant, inserted after the address of its successor in the same slot. */
static void former_occupant(int rank)
{
	/* The bytes of an address that name the slot in the region: docs/reference/region-format.md. */
	enum { SLOT_AT = 2, SLOT_BYTES = 2, FORMER = 0, PRESENT = 1 };
	unsigned char names[2][NAME_MAX_BYTES] = {{0}};
	fi_addr_t known[2] = {0};
	fi_addr_t source = 0;
	char buffer = 0;
	struct side side;

	side_prepare(&side, rank, &(struct side_options){0});
	for (int tries = 0;; tries++) {
		size_t length = NAME_MAX_BYTES;
		int which = tries == 0 ? FORMER : PRESENT;
		side.endpoint = side_endpoint(&side, &(struct side_options){0});
		SAME(fi_enable(side.endpoint), 0);
		SAME(fi_getname(&side.endpoint->fid, names[which], &length), 0);
		if (which == PRESENT && memcmp(names[0] + SLOT_AT, names[1] + SLOT_AT, SLOT_BYTES) == 0)
			break;
		SAME(fi_close(&side.endpoint->fid), 0);
		CHECK(tries < 10000); /* any free slot may be taken */
	}
	CHECK(memcmp(names[FORMER], names[PRESENT], NAME_MAX_BYTES) != 0);
	SAME(fi_av_insert(side.av, names[PRESENT], 1, &known[PRESENT], 0, NULL), 1);
	SAME(fi_av_insert(side.av, names[FORMER], 1, &known[FORMER], 0, NULL), 1);
	for (int removed = 0; removed < 2; removed++) {
		SAME(fi_trecv(side.endpoint, &buffer, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
		POST(&side, fi_tinject(side.endpoint, "x", 1, known[PRESENT], 1));
		(void)next_completion_from(side.received, &source);
		SAME(source, known[PRESENT]);
		if (!removed)
			SAME(fi_av_remove(side.av, &known[FORMER], 1, 0), 0);
	}
	SAME(fi_close(&side.endpoint->fid), 0);
	side_close(&side);
}

/* A sender that is in no vector has no number, and its messages arrive nevertheless. */
static void unknown_source(int rank)
{
	struct side side;
	char buffer = 0;
	fi_addr_t source = 0;

	side_open(&side, rank, NULL);
	if (rank == 1)
		SAME(fi_av_remove(side.av, &side.peer[0], 1, 0), 0);
	barrier(&side);
	if (rank == 0) {
		POST(&side, fi_inject(side.endpoint, "x", 1, side.peer[1]));
	} else {
		SAME(fi_recv(side.endpoint, &buffer, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		SAME(next_completion_from(side.received, &source).len, 1);
		CHECK(source == FI_ADDR_NOTAVAIL && buffer == 'x');
	}
	barrier(&side);
	side_close(&side);
}

/* The same from beyond the region, to a rank that has inserted no peer there and only waits. */
static void unknown_beyond(int rank)
{
	struct side side;
	struct fi_cq_tagged_entry entry;
	uint64_t name[NAME_MAX_BYTES / sizeof(uint64_t)] = {0};
	size_t length = sizeof(name);
	char buffer = 0;
	fi_addr_t to = 0;

	if (rank == 1) {
		SAME(unsetenv("VICINAL_REGION"), 0);
		SAME(setenv("FI_PROVIDER", "vicinal", 1), 0); /* then it is offered without a region */
	}
	side_prepare(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	side.endpoints[side.count++] = side.endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_enable(side.endpoint), 0);
	if (rank == 0) {
		SAME(fi_getname(&side.endpoint->fid, name, &length), 0);
		for (int i = 0; i < (int)(sizeof(name) / sizeof(name[0])); i++)
			*shared_word(i) = name[i];
		SAME(fi_recv(side.endpoint, &buffer, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	}
	barrier(NULL);
	if (rank == 0) {
		SAME(fi_cq_sread(side.received, &entry, 1, NULL, -1), 1);
		CHECK(entry.len == 1 && buffer == 'x');
	} else {
		for (int i = 0; i < (int)(sizeof(name) / sizeof(name[0])); i++)
			name[i] = *shared_word(i);
		SAME(fi_av_insert(side.av, name, 1, &to, 0, NULL), 1);
		POST(&side, fi_inject(side.endpoint, "x", 1, to));
	}
	barrier(&side);
	side_close(&side);
}

/*
 * Move this process into a network namespace of its own, which has only a loopback interface and no other
 * route. Otherwise the machine's network would decide what happens to packets to an address that no host has:
 * one gateway refuses them, another one drops them.
 */
static void enter_own_network(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	if (unshare(CLONE_NEWNET) != 0)
		SAME(unshare(CLONE_NEWUSER | CLONE_NEWNET), 0);
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(control >= 0);
	SAME(ioctl(control, SIOCSIFFLAGS, &request), 0);
	SAME(close(control), 0);
}

/*
 * A TCP socket whose queue is full, so that the kernel drops what arrives, as on a route that leads nowhere.
 */
static void swallow(const struct sockaddr_in *address)
{
	enum { MORE_THAN_FIT = 4 };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(listener >= 0);
	SAME(bind(listener, (const struct sockaddr *)address, sizeof(*address)), 0);
	SAME(listen(listener, 0), 0);
	for (int i = 0; i < MORE_THAN_FIT; i++) {
		int filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		CHECK(filler >= 0);
		(void)connect(filler, (const struct sockaddr *)address, sizeof(*address));
	}
}

/*
 * A host that answers nothing, as behind a firewall that drops: first messages to it end in errors after
 * VICINAL_PEER_TIMEOUT. In a network of our own, a loopback address with full queues stands for it, and a UDP
 * socket that nobody reads.
 */
static void swallowed_beyond(int rank)
{
	enum { NONCE_AT = 8, PORT_AT = 38, HOST_AT = 40, DISCARD = 9, PEER_PORT = 4711 };
	struct sockaddr_in peer = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1),
				   .sin_port = htons(PEER_PORT)};
	struct sockaddr_in discard = peer;
	static char large[1 << 20];
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	size_t length = 0;
	fi_addr_t to = 0;
	char received = 0;

	enter_own_network();
	discard.sin_port = htons(DISCARD);
	swallow(&peer);
	swallow(&discard);
	int reader = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	SAME(bind(reader, (const struct sockaddr *)&peer, sizeof(peer)), 0);
	SAME(unsetenv("VICINAL_REGION"), 0);
	SAME(setenv("VICINAL_PEER_TIMEOUT", "1", 1), 0);
	SAME(setenv("FI_PROVIDER", "vicinal", 1), 0);
	side_open(&side, rank, NULL);
	own_name(&side, name, &length);
	name[NONCE_AT] ^= 1;
	memcpy(name + PORT_AT, &peer.sin_port, sizeof(peer.sin_port));
	memcpy(name + HOST_AT, &peer.sin_addr, sizeof(peer.sin_addr));
	SAME(fi_av_insert(side.av, name, 1, &to, 0, NULL), 1);
	SAME(fi_trecv(side.endpoint, &received, 1, NULL, to, 7, 0, &received), 0);
	POST(&side, fi_tsend(side.endpoint, large, sizeof(large), NULL, to, 7, large));
	struct fi_cq_err_entry error = next_error(side.sent);
	CHECK(error.op_context == large && error.err > 0);
	error = next_error(side.received);
	CHECK(error.op_context == &received && error.err > 0);
	exchange(&side, side.peer[rank], 8);
	side_close(&side);
}

/*
 * Addresses beyond the region that no host has, or to which no route leads: errors, and everything else goes
 * on.
 */
static void unreachable_beyond(int rank)
{
	/* Offsets in an address, and of the IPv4 address in it: struct address in api/provider.h. */
	enum { NONCE_AT = 8, PORT_AT = 38, HOST_AT = 40 };
	static const unsigned char nowhere[][6] = {
		{0, 1, 0, 0, 0, 0},   /* our own host, an unused port */
		{0, 1, 240, 0, 0, 1}, /* an address of no host */
	};
	static char large[1 << 20];
	struct side side;
	unsigned char name[NAME_MAX_BYTES];
	size_t length = 0;

	enter_own_network();
	SAME(unsetenv("VICINAL_REGION"), 0);
	SAME(setenv("FI_PROVIDER", "vicinal", 1), 0);
	side_open(&side, rank, NULL);
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
		fi_addr_t to = 0;
		char sent = 0;
		char received = 0;
		own_name(&side, name, &length);
		name[NONCE_AT] ^= (unsigned char)(i + 1);
		memcpy(name + PORT_AT, nowhere[i], 2);
		if (nowhere[i][2] != 0)
			memcpy(name + HOST_AT, nowhere[i] + 2, 4);
		SAME(fi_av_insert(side.av, name, 1, &to, 0, NULL), 1);
		SAME(fi_trecv(side.endpoint, &received, 1, NULL, to, 7, 0, &received), 0);
		POST(&side, fi_tsend(side.endpoint, large, sizeof(large), NULL, to, 7, &sent));
		struct fi_cq_err_entry error = next_error(side.sent);
		CHECK(error.op_context == &sent && error.err > 0);
		error = next_error(side.received);
		CHECK(error.op_context == &received && error.err > 0);
		/* From now on the error comes at once. */
		CHECK(fi_tinject(side.endpoint, "x", 1, to, 7) < 0);
		exchange(&side, side.peer[rank], 8);
	}
	side_close(&side);
}

const struct scenario address_scenarios[] = {
	{"names", 1, names},
	{"table", 4, table},
	{"map", 4, map},
	{"foreign", 1, foreign},
	{"unsupported", 1, unsupported},
	{"removal", 2, removal},
	{"many", 2, many},
	{"former_occupant", 1, former_occupant},
	{"unknown_source", 2, unknown_source},
	{"unknown_beyond", 2, unknown_beyond},
	{"unreachable_beyond", 1, unreachable_beyond},
	{"swallowed_beyond", 1, swallowed_beyond},
	{0},
};
