/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peers - the cost of known but idle peers for an endpoint.
 *
 * It starts PEERS processes with one endpoint each, and opens an endpoint of its own, all of the
 * provider that FI_PROVIDER names. Every peer and the endpoint send each other one message, so that
 * the connections exist. Then the peers sleep, and the endpoint reads its empty completion queue
 * again and again. A provider may poll more often, yield or sleep after many empty reads. So reads
 * are timed in bursts, each after a message to itself: first `after`, the reads directly after that
 * completion, then `steady`, the following reads. The program prints one JSON object for each
 * repetition: nanoseconds of one read, in the median burst.
 *
 *     peers PEERS [REPETITIONS]
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROGRAM "peers"
#include "side.h"

#define PEERS_MAX 1024
#define AFTER_READS 32
#define STEADY_READS 1000
#define BURSTS 200
#define PAUSE 500
#define SECONDS_MAX 120 /* ends a program that hangs */

/* What the processes exchange outside of libfabric, through memory. */
struct common {
	struct name names[PEERS_MAX + 1];  /* the last is the endpoint's own */
	volatile int state[PEERS_MAX + 1]; /* of each process: 0, then NAMED, then DONE */
};
enum { NAMED = 1, DONE };

static void tell_name(struct side *side, struct common *common, int who)
{
	struct name *name = &common->names[who];

	name->length = sizeof(name->bytes);
	check(fi_getname(&side->endpoint->fid, name->bytes, &name->length), "fi_getname");
	__atomic_store_n(&common->state[who], NAMED, __ATOMIC_RELEASE);
}

static fi_addr_t know(struct side *side, struct common *common, int who)
{
	fi_addr_t address = FI_ADDR_UNSPEC;

	while (__atomic_load_n(&common->state[who], __ATOMIC_ACQUIRE) < NAMED)
		usleep(1000);
	if (fi_av_insert(side->av, common->names[who].bytes, 1, &address, 0, NULL) != 1)
		check(-FI_EADDRNOTAVAIL, "fi_av_insert");
	return address;
}

static void be_a_peer(struct common *common, int who, int peers)
{
	struct side side = {0};
	static long word;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(SECONDS_MAX);
	open_side(&side);
	tell_name(&side, common, who);
	fi_addr_t other = know(&side, common, peers);
	check(fi_trecv(side.endpoint, &word, sizeof(word), NULL, other, 1, 0, NULL), "fi_trecv");
	send_to(&side, other, 1);
	wait_for_one(&side, PAUSE);
	__atomic_store_n(&common->state[who], DONE, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* Nanoseconds of one read, averaged over `reads` reads, which must all find an empty queue. */
static double time_reads(struct side *side, int reads)
{
	struct fi_cq_tagged_entry entry;
	double start = now_ns();

	for (int i = 0; i < reads; i++) {
		if (fi_cq_read(side->cq, &entry, 1) != -FI_EAGAIN) {
			fprintf(stderr, "peers: error: an idle peer sent a message: start it again\n");
			exit(1);
		}
	}
	return (now_ns() - start) / reads;
}

static void measure(struct side *side, fi_addr_t self, int peers, int repetition)
{
	static double after[BURSTS], steady[BURSTS];
	static long word;

	for (int burst = 0; burst < BURSTS; burst++) {
		check(fi_trecv(side->endpoint, &word, sizeof(word), NULL, self, 1, 0, NULL), "fi_trecv");
		send_to(side, self, 1);
		wait_for_one(side, 0);
		after[burst] = time_reads(side, AFTER_READS);
		steady[burst] = time_reads(side, STEADY_READS);
	}
	qsort(after, BURSTS, sizeof(after[0]), compare);
	qsort(steady, BURSTS, sizeof(steady[0]), compare);
	printf("{\"peers\": %d, \"repetition\": %d, \"after_nanoseconds\": %.3f, "
	       "\"steady_nanoseconds\": %.3f}\n",
	       peers, repetition, after[BURSTS / 2], steady[BURSTS / 2]);
}

int main(int argc, char **argv)
{
	int peers = argc > 1 ? number(argv[1], PEERS_MAX) : -1,
	    repetitions = argc > 2 ? number(argv[2], PEERS_MAX) : 5;
	struct common *common =
		mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static pid_t children[PEERS_MAX];
	struct side side = {0};
	static long word;

	if (peers < 0 || repetitions < 1 || common == MAP_FAILED) {
		fprintf(stderr, "peers: error: 0 to %d peers are possible: use peers PEERS [REPETITIONS]\n",
			PEERS_MAX);
		return 2;
	}
	/*
	 * libfabric's first call loads all providers, and one of them reads all of /proc/kallsyms
	 * twice, which takes a tenth of a second. Before the fork, this is paid only once. Nothing
	 * is open yet that would have to survive the fork.
	 */
	fi_freeinfo(find_provider(NULL));
	for (int i = 0; i < peers; i++) {
		children[i] = fork();
		if (children[i] == 0)
			be_a_peer(common, i, peers);
		if (children[i] < 0)
			check(-FI_ENOMEM, "fork");
	}
	alarm(SECONDS_MAX);
	open_side(&side);
	tell_name(&side, common, peers);
	fi_addr_t self = know(&side, common, peers);
	for (int i = 0; i < peers; i++) {
		fi_addr_t peer = know(&side, common, i);

		check(fi_trecv(side.endpoint, &word, sizeof(word), NULL, peer, 1, 0, NULL), "fi_trecv");
		send_to(&side, peer, 1);
	}
	for (int i = 0; i < peers; i++)
		wait_for_one(&side, PAUSE);
	for (int i = 0; i < peers; i++)
		while (__atomic_load_n(&common->state[i], __ATOMIC_ACQUIRE) < DONE) {
			(void)fi_cq_read(side.cq, NULL, 0);
			usleep(100);
		}
	for (int repetition = 0; repetition < repetitions; repetition++)
		measure(&side, self, peers, repetition);
	fflush(stdout);
	close_side(&side);
	for (int i = 0; i < peers; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	return 0;
}
