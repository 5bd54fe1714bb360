/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * traffic.c - one rank of a job that is stopped, continued and killed from outside. It sends numbered and
 * checksummed messages to all other ranks, and checks theirs.
 *
 *   traffic DIRECTORY RANK RANKS SEND RECEIVE LONGEST SEED [SECONDS]
 *
 * Ranks find each other through files name.RANK in DIRECTORY. Each sends SEND messages of up to LONGEST bytes
 * to every other rank, and wants RECEIVE from each. At the end it prints a line for each peer, "peer N sent S
 * received R ERROR". The error is 0, or the error that ended the exchange with a peer that is gone. The
 * status is 0 unless something was wrong. A rank that has received a few messages from every other rank
 * creates a file talks.RANK.
 *
 * With SECONDS a rank goes on for at least that time, until all ranks have received many messages from each
 * other, after the first error if there was one: a file enough.RANK announces that. No rank closes its
 * endpoint before all have stopped using theirs (over.RANK). A rank goes on after errors: it gives up a
 * message that ended in one, and sends the next. From the first error of a peer on, numbers of its messages
 * may be missing, but none comes again or late. The lines go on with " later L", the number of messages that
 * came after the error.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 16
#define NAME_BYTES 64
#define GUARD_SECONDS 240U
#define FEW 10U
#define MANY 101U

struct header {
	uint64_t number;
	uint64_t length; /* of the whole message */
	uint64_t sum;    /* of the bytes after this header */
};

struct peer {
	fi_addr_t address;
	unsigned char *in;
	unsigned char *out;
	uint64_t sent;
	uint64_t received;
	bool sending;   /* `out` is in progress */
	bool receiving; /* `in` is posted */
	int error;      /* positive errno: the peer is gone; with SECONDS, its first error */
	uint64_t later; /* received after the error */
};

struct rank {
	struct fid_ep *endpoint;
	struct fid_cq *cq;
	struct peer peers[RANKS_MAX];
	int number;
	int count;
	uint64_t send;
	uint64_t receive;
	size_t longest;
	uint64_t seed;
	double until; /* by the clock; 0: to the end */
	const char *directory;
	bool talks;  /* and the file was written */
	bool enough; /* and the file was written */
};

static double now(void)
{
	struct timespec time;

	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static _Noreturn void fail(const char *what, long long value)
{
	(void)fprintf(stderr, "traffic: %s: %lld\n", what, value);
	exit(1);
}

static void must(ssize_t result, const char *what)
{
	if (result < 0)
		fail(what, result);
}

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static uint64_t sum_of(const unsigned char *bytes, size_t length)
{
	uint64_t sum = UINT64_C(1469598103934665603);

	for (size_t i = 0; i < length; i++)
		sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
	return sum;
}

/* Mostly short, sometimes up to the longest. Both sides compute the same length. */
static size_t length_of(const struct rank *self, int from, int to, uint64_t number)
{
	uint64_t value = mix(self->seed + mix((uint64_t)from << 48 ^ (uint64_t)to << 32 ^ number));
	size_t limit = self->longest >> value % 8 * 2;

	return sizeof(struct header) + value / 8 % (limit + 1);
}

/* ---- joining ---- */

static struct fid_domain *open_domain(struct fi_info **info)
{
	struct fi_info *hints = fi_allocinfo();
	struct fid_fabric *fabric = NULL;
	struct fid_domain *domain = NULL;

	hints->fabric_attr->prov_name = strdup("vicinal");
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, info), "fi_getinfo");
	must(fi_fabric((*info)->fabric_attr, &fabric, NULL), "fi_fabric");
	must(fi_domain(fabric, *info, &domain, NULL), "fi_domain");
	fi_freeinfo(hints);
	return domain;
}

static void write_name(const struct rank *self, const char *directory)
{
	unsigned char name[NAME_BYTES] = {0};
	size_t length = sizeof(name);
	char path[4096];
	char hidden[4096];

	must(fi_getname(&self->endpoint->fid, name, &length), "fi_getname");
	(void)snprintf(path, sizeof(path), "%s/name.%d", directory, self->number);
	(void)snprintf(hidden, sizeof(hidden), "%s/.name.%d", directory, self->number);
	FILE *file = fopen(hidden, "wb");
	if (file == NULL || fwrite(name, sizeof(name), 1, file) != 1 || fclose(file) != 0 ||
	    rename(hidden, path) != 0)
		fail("writing a name", self->number);
}

/* An empty file for the process that watches the ranks. */
static void write_mark(const struct rank *self, const char *mark)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s.%d", self->directory, mark, self->number);
	FILE *file = fopen(path, "wb");
	if (file == NULL || fclose(file) != 0)
		fail("writing a mark", self->number);
}

static bool all_marked(const struct rank *self, const char *mark)
{
	char path[4096];

	for (int rank = 0; rank < self->count; rank++) {
		(void)snprintf(path, sizeof(path), "%s/%s.%d", self->directory, mark, rank);
		if (access(path, F_OK) != 0)
			return false;
	}
	return true;
}

static void await_marks(const struct rank *self, const char *mark)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	while (!all_marked(self, mark))
		(void)nanosleep(&pause, NULL);
}

static void read_name(const char *directory, int rank, unsigned char name[NAME_BYTES])
{
	const struct timespec pause = {.tv_nsec = 1000000};
	char path[4096];
	FILE *file = NULL;

	(void)snprintf(path, sizeof(path), "%s/name.%d", directory, rank);
	while ((file = fopen(path, "rb")) == NULL)
		(void)nanosleep(&pause, NULL);
	if (fread(name, NAME_BYTES, 1, file) != 1)
		fail("reading a name", rank);
	(void)fclose(file);
}

static void join(struct rank *self)
{
	const char *directory = self->directory;
	struct fi_info *info = NULL;
	struct fid_domain *domain = open_domain(&info);
	struct fid_av *av = NULL;
	unsigned char name[NAME_BYTES];

	must(fi_av_open(domain, &(struct fi_av_attr){.type = FI_AV_TABLE}, &av, NULL), "fi_av_open");
	must(fi_cq_open(domain, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_TAGGED}, &self->cq, NULL),
	     "fi_cq_open");
	must(fi_endpoint(domain, info, &self->endpoint, NULL), "fi_endpoint");
	must(fi_ep_bind(self->endpoint, &av->fid, 0), "binding");
	must(fi_ep_bind(self->endpoint, &self->cq->fid, FI_TRANSMIT | FI_RECV), "binding");
	must(fi_enable(self->endpoint), "fi_enable");
	write_name(self, directory);
	for (int rank = 0; rank < self->count; rank++) {
		struct peer *peer = &self->peers[rank];
		read_name(directory, rank, name);
		if (fi_av_insert(av, name, 1, &peer->address, 0, NULL) != 1)
			fail("an address that does not fit, of rank", rank);
		peer->in = malloc(self->longest + sizeof(struct header));
		peer->out = malloc(self->longest + sizeof(struct header));
		if (peer->in == NULL || peer->out == NULL)
			fail("no memory", 0);
	}
	fi_freeinfo(info);
}

/* ---- exchanging ---- */

static void lose(struct peer *peer, ssize_t error)
{
	if (peer->error == 0)
		peer->error = (int)(error < 0 ? -error : error);
}

static void send_next(struct rank *self, int to)
{
	struct peer *peer = &self->peers[to];
	size_t length = length_of(self, self->number, to, peer->sent);
	unsigned char *bytes = peer->out + sizeof(struct header);

	for (size_t i = 0; i < length - sizeof(struct header); i++)
		bytes[i] = (unsigned char)(mix(peer->sent + i / 64) + i);
	struct header header = {
		.number = peer->sent, .length = length, .sum = sum_of(bytes, length - sizeof(header))};
	memcpy(peer->out, &header, sizeof(header));
	ssize_t result = fi_tsend(self->endpoint, peer->out, length, NULL, peer->address,
				  (uint64_t)self->number, peer->out);
	if (result == 0)
		peer->sending = true;
	else if (result != -FI_EAGAIN)
		lose(peer, result);
}

static void post(struct rank *self, int from)
{
	struct peer *peer = &self->peers[from];
	ssize_t result = fi_trecv(self->endpoint, peer->in, self->longest + sizeof(struct header), NULL,
				  peer->address, (uint64_t)from, 0, peer->in);

	if (result == 0)
		peer->receiving = true;
	else if (result != -FI_EAGAIN)
		lose(peer, result);
}

static void check(struct rank *self, int from, size_t length)
{
	struct peer *peer = &self->peers[from];
	struct header header;

	memcpy(&header, peer->in, sizeof(header));
	if (self->until != 0 && peer->error != 0) {
		if (header.number < peer->received)
			fail("a message is doubled or out of order, from rank", from);
		peer->received = header.number;
		peer->later++;
	}
	if (header.number != peer->received)
		fail("a message is lost, doubled or out of order, from rank", from);
	if (length != header.length || length != length_of(self, from, self->number, peer->received))
		fail("a message has the wrong length, from rank", from);
	if (header.sum != sum_of(peer->in + sizeof(header), length - sizeof(header)))
		fail("a message has the wrong content, from rank", from);
	peer->received++;
}

static int rank_of(const struct rank *self, const void *context, bool *sent)
{
	for (int rank = 0; rank < self->count; rank++) {
		*sent = self->peers[rank].out == context;
		if (*sent || self->peers[rank].in == context)
			return rank;
	}
	fail("a completion without an operation", 0);
}

static void take_completions(struct rank *self)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result = 0;
	bool sent = false;

	while ((result = fi_cq_read(self->cq, &entry, 1)) != -FI_EAGAIN) {
		struct fi_cq_err_entry error = {0};
		if (result == -FI_EAVAIL)
			must(fi_cq_readerr(self->cq, &error, 0), "fi_cq_readerr");
		else if (result != 1)
			fail("fi_cq_read", result);
		int rank = rank_of(self, result == 1 ? entry.op_context : error.op_context, &sent);
		struct peer *peer = &self->peers[rank];
		*(sent ? &peer->sending : &peer->receiving) = false;
		if (result != 1)
			lose(peer, error.err);
		/* A message that ended in an error is not sent again: its number is left out. */
		if (result != 1 && sent && self->until != 0)
			peer->sent++;
		if (result != 1)
			continue;
		if (sent)
			peer->sent++;
		else
			check(self, rank, entry.len);
	}
}

/* Has every other rank sent this many messages, after its error if there was one? */
static bool all_sent(const struct rank *self, uint64_t least)
{
	for (int rank = 0; rank < self->count; rank++) {
		const struct peer *peer = &self->peers[rank];
		uint64_t wanted = least < self->receive ? least : self->receive;
		if (rank != self->number && (peer->error != 0 ? peer->later : peer->received) < wanted)
			return false;
	}
	return true;
}

static void tell(struct rank *self)
{
	if (!self->talks && all_sent(self, FEW)) {
		self->talks = true;
		write_mark(self, "talks");
	}
	if (!self->enough && self->until != 0 && now() > self->until && all_sent(self, MANY)) {
		self->enough = true;
		write_mark(self, "enough");
	}
}

/* Exchange messages until done with all present peers. Operations with absent peers must end, too. */
static bool exchange(struct rank *self)
{
	bool busy = false;

	tell(self);
	if (self->enough && all_marked(self, "enough"))
		return false;
	for (int rank = 0; rank < self->count; rank++) {
		struct peer *peer = &self->peers[rank];
		if (rank == self->number)
			continue;
		bool good = peer->error == 0 || self->until != 0;
		if (good && !peer->sending && peer->sent < self->send)
			send_next(self, rank);
		if (good && !peer->receiving && peer->received < self->receive)
			post(self, rank);
		busy = busy || self->until != 0 || peer->sending || peer->receiving ||
		       (peer->error == 0 && (peer->sent < self->send || peer->received < self->receive));
	}
	return busy;
}

int main(int argc, char **argv)
{
	static struct rank self; /* its buffers live as long as the process */

	if (argc != 8 && argc != 9) {
		(void)fprintf(stderr,
			      "usage: traffic DIRECTORY RANK RANKS SEND RECEIVE LONGEST SEED [SECONDS]\n");
		return 2;
	}
	(void)alarm(GUARD_SECONDS);
	self.number = (int)strtol(argv[2], NULL, 10);
	self.count = (int)strtol(argv[3], NULL, 10);
	self.send = strtoull(argv[4], NULL, 10);
	self.receive = strtoull(argv[5], NULL, 10);
	self.longest = strtoull(argv[6], NULL, 10);
	self.seed = strtoull(argv[7], NULL, 10);
	if (self.count > RANKS_MAX || self.number >= self.count)
		fail("too many ranks", self.count);
	self.directory = argv[1];
	join(&self);
	self.until = argc == 9 ? now() + strtod(argv[8], NULL) : 0;
	while (exchange(&self))
		take_completions(&self);
	if (self.until != 0) {
		write_mark(&self, "over");
		await_marks(&self, "over");
	}
	for (int rank = 0; rank < self.count; rank++) {
		if (rank == self.number)
			continue;
		(void)printf("peer %d sent %llu received %llu %d", rank,
			     (unsigned long long)self.peers[rank].sent,
			     (unsigned long long)self.peers[rank].received, self.peers[rank].error);
		if (self.until != 0)
			(void)printf(" later %llu", (unsigned long long)self.peers[rank].later);
		(void)printf("\n");
	}
	must(fi_close(&self.endpoint->fid), "fi_close");
	return 0;
}
