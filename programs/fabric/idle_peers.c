/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle_peers - the cost of idle network peers for messages through a region.
 *
 * Two processes, each on its own CPU, bounce 8 bytes through the region that VICINAL_REGION names,
 * over two pairs of endpoints in turn. The endpoints of one pair know no other peer. The endpoints
 * of the other pair also know IDLE endpoints of a third process, which is in the region OTHER and
 * so is reached over the network. They have exchanged a message with each idle endpoint, so that
 * the connections exist; then the idle endpoints sleep. The pairs alternate within one process, so
 * that both see the same state of the machine. The program prints one JSON object for each
 * repetition: half of a round trip in nanoseconds, in the median burst.
 *
 *     idle_peers CPU CPU IDLE OTHER [REPETITIONS [BURSTS]]
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROGRAM "idle_peers"
#include "bounce.h"

#define IDLE_MAX 256
#define BURSTS_MOST 100 /* of each pair, in a repetition */
#define ITERATIONS 4000
#define SETTLING 300000 /* microseconds until the core is polled rarely again */
#define SECONDS_MAX 120 /* ends a program that hangs */

enum { WITHOUT_IDLE, WITH_IDLE, PAIRS };

/* What the processes exchange outside of libfabric, through memory. */
struct common {
	struct name ends[ENDS][PAIRS];
	struct name idle[IDLE_MAX];
	volatile int named[ENDS + 1]; /* the ends, and the idle endpoints */
	volatile int met[ENDS];       /* has this end received from all idle endpoints? */
};

/*
 * All idle endpoints in one process: each receives from both ends, answers, and does nothing more.
 */
static void be_idle(struct common *common, int idle)
{
	static struct side sides[IDLE_MAX];

	for (int i = 0; i < idle; i++) {
		open_side(&sides[i]);
		name_of(&sides[i], &common->idle[i]);
	}
	tell(&common->named[ENDS]);
	for (int end = 0; end < ENDS; end++) {
		await(&common->named[end]);
		for (int i = 0; i < idle; i++) {
			fi_addr_t other = know(&sides[i], &common->ends[end][WITH_IDLE]);
			expect(&sides[i], other, (uint64_t)end);
			wait_for_one(&sides[i], PAUSE);
			send_to(&sides[i], other, (uint64_t)end);
		}
		while (__atomic_load_n(&common->met[end], __ATOMIC_ACQUIRE) == 0)
			for (int i = 0; i < idle; i++)
				(void)fi_cq_read(sides[i].cq, NULL, 0);
	}
	for (;;)
		pause();
}

static void meet_the_idle(struct side *side, struct common *common, int end, int idle)
{
	await(&common->named[ENDS]);
	for (int i = 0; i < idle; i++) {
		fi_addr_t other = know(side, &common->idle[i]);
		expect(side, other, (uint64_t)end);
		send_to(side, other, (uint64_t)end);
		wait_for_one(side, PAUSE);
	}
	tell(&common->met[end]);
}

static void repeat(struct side *sides, const fi_addr_t *others, int end, int idle, int repetition, int bursts)
{
	static double times[PAIRS][BURSTS_MOST];

	for (int burst = 0; burst < PAIRS * bursts; burst++) {
		int pair = burst % PAIRS;
		double start = now_ns();

		bounce(&sides[pair], others[pair], end, ITERATIONS);
		times[pair][burst / PAIRS] = (now_ns() - start) / ITERATIONS / 2;
	}
	if (end != LEFT)
		return;
	for (int pair = 0; pair < PAIRS; pair++)
		qsort(times[pair], (size_t)bursts, sizeof(times[pair][0]), compare);
	printf("{\"idle\": %d, \"repetition\": %d, \"without_idle_nanoseconds\": %.3f, "
	       "\"with_idle_nanoseconds\": %.3f}\n",
	       idle, repetition, times[WITHOUT_IDLE][bursts / 2], times[WITH_IDLE][bursts / 2]);
}

static void be_an_end(struct common *common, int end, int cpu, int idle, int repetitions, int bursts)
{
	struct side sides[PAIRS] = {0};
	fi_addr_t others[PAIRS];

	pin(cpu);
	for (int pair = 0; pair < PAIRS; pair++) {
		open_side(&sides[pair]);
		name_of(&sides[pair], &common->ends[end][pair]);
	}
	tell(&common->named[end]);
	await(&common->named[ENDS - 1 - end]);
	for (int pair = 0; pair < PAIRS; pair++)
		others[pair] = know(&sides[pair], &common->ends[ENDS - 1 - end][pair]);
	meet_the_idle(&sides[WITH_IDLE], common, end, idle);
	await(&common->met[ENDS - 1 - end]);
	usleep(SETTLING);
	for (int repetition = 0; repetition < repetitions; repetition++)
		repeat(sides, others, end, idle, repetition, bursts);
	fflush(stdout);
	for (int pair = 0; pair < PAIRS; pair++)
		close_side(&sides[pair]);
}

int main(int argc, char **argv)
{
	int cpus[ENDS] = {argc > 2 ? number(argv[1], CPU_SETSIZE - 1) : -1,
			  argc > 2 ? number(argv[2], CPU_SETSIZE - 1) : -1};
	int idle = argc > 4 ? number(argv[3], IDLE_MAX) : -1;
	int repetitions = argc > 5 ? number(argv[5], 1000) : 5;
	int bursts = argc > 6 ? number(argv[6], BURSTS_MOST) : BURSTS_MOST;
	struct common *common =
		mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[2];
	int status = 0;

	if (cpus[LEFT] < 0 || cpus[RIGHT] < 0 || idle < 0 || repetitions < 1 || bursts < 1 ||
	    common == MAP_FAILED) {
		fprintf(stderr,
			"idle_peers: error: 0 to %d idle peers are possible: use idle_peers CPU CPU IDLE "
			"OTHER [REPETITIONS [BURSTS]]\n",
			IDLE_MAX);
		return 2;
	}
	for (int child = 0; child < 2; child++) {
		children[child] = fork();
		if (children[child] < 0)
			check(-FI_ENOMEM, "fork");
		if (children[child] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(SECONDS_MAX);
		if (child == 0) {
			setenv("VICINAL_REGION", argv[4], 1);
			be_idle(common, idle);
		}
		be_an_end(common, RIGHT, cpus[RIGHT], idle, repetitions, bursts);
		return 0;
	}
	alarm(SECONDS_MAX);
	be_an_end(common, LEFT, cpus[LEFT], idle, repetitions, bursts);
	kill(children[0], SIGKILL);
	waitpid(children[0], NULL, 0);
	waitpid(children[1], &status, 0);
	return status == 0 ? 0 : 1;
}
