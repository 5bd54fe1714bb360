/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * across - the time that Vicinal adds to a message between two hosts, compared with the core
 * provider alone.
 *
 * Started on two hosts, as end 0 and end 1, with one FILE that both can open, in which they
 * exchange their addresses. They bounce 8 bytes over two pairs of endpoints in turn: one pair of
 * the provider vicinal, which is in no region and so sends over the core, and one pair of the core
 * itself, libfabric's tcp. The pairs alternate in short bursts within one process, so that both see
 * the same state of the machine. If they ran one after the other, they would also differ by the
 * other load of the machine, and by the hypervisor's placement of its processors. The program
 * prints one JSON object for each repetition: half of a round trip of the core in nanoseconds, in
 * the median burst, and the ratio of vicinal's time to it, in the median pair of neighbouring
 * bursts.
 *
 *     across END CPU FILE [REPETITIONS [BURSTS]]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>

#define PROGRAM "across"
#include "bounce.h"

#define BURSTS_MOST 200 /* of each pair, in a repetition */
#define ITERATIONS 100
#define UNTIMED 5       /* untimed messages of a burst, after a burst of the other pair */
#define SECONDS_MAX 120 /* ends a program that hangs */

enum { OURS, CORE, PAIRS };

/* What the ends exchange outside of libfabric, through a file. */
struct common {
	struct name ends[ENDS][PAIRS];
	volatile int named[ENDS];
};

/*
 * libfabric's name for its tcp: in 1.17 it is "net", because the "tcp" of 1.17 has no reliable
 * datagrams.
 */
static const char *core_name(void)
{
	static const char *const names[] = {"tcp", "net"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct fi_info *info = list_provider(names[i]);
		bool there = info != NULL && strcmp(info->fabric_attr->prov_name, names[i]) == 0;
		fi_freeinfo(info);
		if (there)
			return names[i];
	}
	fprintf(stderr, "across: error: libfabric has no tcp: check that FI_PROVIDER names tcp and net\n");
	exit(1);
}

static struct common *open_common(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	struct common *common = MAP_FAILED;

	if (file >= 0 && ftruncate(file, sizeof(*common)) == 0)
		common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (common == MAP_FAILED) {
		fprintf(stderr,
			"across: error: %s cannot be opened or mapped: name a file that both ends can open\n",
			path);
		exit(1);
	}
	close(file);
	return common;
}

static void repeat(struct side *sides, const fi_addr_t *others, int end, int repetition, int bursts)
{
	static double times[PAIRS][BURSTS_MOST], ratios[BURSTS_MOST];

	for (int burst = 0; burst < PAIRS * bursts; burst++) {
		int pair = burst % PAIRS;

		bounce(&sides[pair], others[pair], end, UNTIMED);
		double start = now_ns();
		bounce(&sides[pair], others[pair], end, ITERATIONS);
		times[pair][burst / PAIRS] = (now_ns() - start) / ITERATIONS / 2;
	}
	if (end != LEFT)
		return;
	for (int burst = 0; burst < bursts; burst++)
		ratios[burst] = times[OURS][burst] / times[CORE][burst];
	qsort(ratios, (size_t)bursts, sizeof(ratios[0]), compare);
	qsort(times[CORE], (size_t)bursts, sizeof(times[CORE][0]), compare);
	printf("{\"core\": \"%s\", \"repetition\": %d, \"core_nanoseconds\": %.1f, \"ratio\": %.4f}\n",
	       sides[CORE].info->fabric_attr->prov_name, repetition, times[CORE][bursts / 2],
	       ratios[bursts / 2]);
}

int main(int argc, char **argv)
{
	int end = argc > 3 ? number(argv[1], ENDS - 1) : -1;
	int cpu = argc > 3 ? number(argv[2], CPU_SETSIZE - 1) : -1;
	int repetitions = argc > 4 ? number(argv[4], 1000) : 5;
	int bursts = argc > 5 ? number(argv[5], BURSTS_MOST) : BURSTS_MOST;
	struct side sides[PAIRS] = {0};
	fi_addr_t others[PAIRS];

	if (end < 0 || cpu < 0 || repetitions < 1 || bursts < 1) {
		fprintf(stderr,
			"across: error: end 0 or 1, a CPU, and 1 to %d bursts: use across END CPU "
			"FILE [REPETITIONS [BURSTS]]\n",
			BURSTS_MOST);
		return 2;
	}
	alarm(SECONDS_MAX);
	pin(cpu);
	struct common *common = open_common(argv[3]);
	const char *core = core_name();
	setenv("VICINAL_NET", core, 1);
	open_side_by(&sides[OURS], "vicinal");
	open_side_by(&sides[CORE], core);
	for (int pair = 0; pair < PAIRS; pair++)
		name_of(&sides[pair], &common->ends[end][pair]);
	tell(&common->named[end]);
	await(&common->named[ENDS - 1 - end]);
	for (int pair = 0; pair < PAIRS; pair++)
		others[pair] = know(&sides[pair], &common->ends[ENDS - 1 - end][pair]);
	for (int repetition = 0; repetition < repetitions; repetition++)
		repeat(sides, others, end, repetition, bursts);
	fflush(stdout);
	for (int pair = 0; pair < PAIRS; pair++)
		close_side(&sides[pair]);
	return 0;
}
