/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership: joining, leaving, proving who is there, and taking the slots of the dead. */
#include "world.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMBERS 4U
#define SECOND UINT64_C(1000000000)

static struct region *region;

static int open_region(void **state)
{
	(void)state;
	region = world_region(MEMBERS, REGION_SECTION_MIN);
	return 0;
}

static int close_region(void **state)
{
	(void)state;
	region_detach(region);
	return 0;
}

static struct member *join(void)
{
	struct member *member = NULL;
	struct region_error error;

	if (member_join(region, 3, SECOND, &member, &error) != 0)
		fail_msg("%s", error.text);
	return member;
}

static enum member_state observe(const struct member *self, uint32_t slot, uint32_t epoch)
{
	struct pulse pulse = {0};

	return member_observe(self, slot, epoch, &pulse, monotonic_now(), SECOND);
}

/* A child that joins and is killed while it is a member. Returns the slot that it had. */
static uint32_t join_and_be_killed(uint32_t *epoch, uint64_t *nonce)
{
	int ends[2];
	uint64_t told[3];
	int status = 0;

	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct member *member = join();
		const uint64_t tell[3] = {member->slot, member->epoch, member->nonce};
		(void)!write(ends[1], tell, sizeof(tell));
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(ends[0], told, sizeof(told)), sizeof(told));
	assert_int_equal(close(ends[0]), 0);
	assert_int_equal(close(ends[1]), 0);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	*epoch = (uint32_t)told[1];
	*nonce = told[2];
	return (uint32_t)told[0];
}

static void test_a_member_shows_who_it_is(void **state)
{
	struct member *member = join();
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	(void)state;
	assert_true(member_is_joined(member));
	assert_true(member_identify(region, member->slot, &epoch, &nonce));
	assert_int_equal(epoch, member->epoch);
	assert_int_equal(nonce, member->nonce);
	const struct section_header *header = section_header(region, member->slot);
	assert_int_equal(shared_load_u32(&header->epoch), epoch);
	assert_int_equal(shared_load_u32(&header->pid), (uint32_t)getpid());
	assert_int_equal(shared_load_u32(&header->endpoint), 3);
	assert_int_equal(shared_load_u32(&header->liveness), LIVENESS_LOCK);
	assert_true(member_confirm(region, member->slot, epoch, nonce));
	assert_false(member_confirm(region, member->slot, epoch + 1, nonce));
	assert_false(member_confirm(region, member->slot, epoch, nonce + 1));
	assert_false(member_confirm(region, MEMBERS, epoch, nonce));
	assert_false(member_confirm(region, UINT32_MAX, epoch, nonce));
	for (uint32_t slot = 0; slot < MEMBERS; slot++)
		if (slot != member->slot)
			assert_false(member_identify(region, slot, &epoch, &nonce));
	member_leave(member);
}

static void test_a_rank_is_what_the_launcher_says(void **state)
{
	static const struct {
		const char *variable;
		const char *value;
		uint32_t rank;
	} cases[] = {
		{"VICINAL_RANK", "5", 5},       {"PMIX_RANK", "17", 17},
		{"PMI_RANK", "3", 3},           {"OMPI_COMM_WORLD_RANK", "2", 2},
		{"PMI_RANK", "", UINT32_MAX},   {"PMI_RANK", "three", UINT32_MAX},
		{"PMI_RANK", "7x", UINT32_MAX}, {"PMI_RANK", "99999999999", UINT32_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
		struct member *member = join();
		assert_int_equal(shared_load_u32(&section_header(region, member->slot)->rank), cases[i].rank);
		member_leave(member);
		assert_int_equal(unsetenv(cases[i].variable), 0);
	}
}

static void test_a_full_region_is_refused_until_one_leaves(void **state)
{
	struct member *members[MEMBERS];
	struct member *late = NULL;
	struct region_error error = {""};

	(void)state;
	for (uint32_t i = 0; i < MEMBERS; i++) {
		members[i] = join();
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(members[i]->slot, members[j]->slot);
	}
	assert_int_equal(member_join(region, 0, SECOND, &late, &error), -ENOSPC);
	assert_non_null(strstr(error.text, "is full"));
	uint32_t slot = members[2]->slot;
	uint32_t epoch = members[2]->epoch;
	member_leave(members[2]);
	members[2] = join();
	assert_int_equal(members[2]->slot, slot);
	assert_int_equal(members[2]->epoch, epoch + 1);
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(members[i]);
}

/* What a member left can be read as long as possible: a free slot is not used again at once. */
static void test_the_slot_freed_longest_ago_is_taken(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * MEMBERS; i++) {
		struct member *member = join();
		assert_int_equal(member->slot, i % MEMBERS);
		assert_int_equal(member->epoch, i / MEMBERS + 1);
		member_leave(member);
	}
}

static void test_leaving_is_seen_and_does_not_look_like_dying(void **state)
{
	struct member *watcher = join();
	struct member *other = join();
	uint32_t slot = other->slot;
	uint32_t epoch = other->epoch;

	(void)state;
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_ALIVE);
	assert_int_equal(observe(watcher, watcher->slot, watcher->epoch), MEMBER_ALIVE);
	member_leave(other);
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_LEFT);
	/* Its successor is somebody else. */
	struct member *successor = join();
	while (successor->slot != slot) {
		member_leave(successor);
		successor = join();
	}
	assert_int_equal(observe(watcher, slot, epoch), MEMBER_DIED);
	assert_int_equal(observe(watcher, slot, successor->epoch), MEMBER_ALIVE);
	member_leave(successor);
	member_leave(watcher);
}

static void test_a_killed_member_is_dead_and_its_slot_free_to_take(void **state)
{
	struct member *members[MEMBERS - 1];
	uint32_t epoch = 0;
	uint64_t nonce = 0;

	(void)state;
	for (uint32_t i = 0; i < MEMBERS - 1; i++)
		members[i] = join();
	uint32_t slot = join_and_be_killed(&epoch, &nonce);
	assert_int_equal(observe(members[0], slot, epoch), MEMBER_DIED);
	assert_true(member_confirm(region, slot, epoch, nonce));
	/* All other slots are taken by the living. */
	struct member *heir = join();
	assert_int_equal(heir->slot, slot);
	assert_int_equal(heir->epoch, epoch + 1);
	assert_false(member_confirm(region, slot, epoch, nonce));
	assert_int_equal(observe(members[0], slot, heir->epoch), MEMBER_ALIVE);
	member_leave(heir);
	for (uint32_t i = 0; i < MEMBERS - 1; i++)
		member_leave(members[i]);
}

static void test_the_managers_verdict_counts(void **state)
{
	struct member *watcher = join();
	struct member *other = join();

	(void)state;
	struct member_verdict *verdict = region_verdict(region, other->slot);
	shared_store_u64(&verdict->verdict, (uint64_t)(other->epoch + 1) << 32 | 1);
	assert_int_equal(observe(watcher, other->slot, other->epoch), MEMBER_ALIVE);
	shared_store_u64(&verdict->verdict, (uint64_t)other->epoch << 32 | 1);
	assert_int_equal(observe(watcher, other->slot, other->epoch), MEMBER_DIED);
	member_leave(other);
	member_leave(watcher);
}

static void test_a_heartbeat_is_timed_by_its_observer(void **state)
{
	struct member *watcher = join();
	struct member *other = join();
	struct section_header *header = section_header(region, other->slot);
	struct pulse pulse = {0};
	uint64_t now = 1000 * SECOND;

	(void)state;
	shared_store_u32(&header->liveness, LIVENESS_HEARTBEAT);
	shared_store_u64(&header->heartbeat, 1);
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &pulse, now, SECOND),
			 MEMBER_ALIVE);
	now += SECOND; /* still for just the timeout */
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &pulse, now, SECOND),
			 MEMBER_ALIVE);
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &pulse, now + 1, SECOND),
			 MEMBER_DIED);
	shared_store_u64(&header->heartbeat, 0); /* any change is life, also one backwards */
	assert_int_equal(member_observe(watcher, other->slot, other->epoch, &pulse, now + 2, SECOND),
			 MEMBER_ALIVE);
	member_leave(other);
	member_leave(watcher);
}

/* Between guests there are no locks: a full region shows its dead by hearts that stand still. */
static void test_a_slot_whose_heart_stands_still_is_taken(void **state)
{
	struct member *members[MEMBERS];

	(void)state;
	region->kind = REGION_PCI;
	for (uint32_t i = 0; i < MEMBERS; i++)
		members[i] = join();
	/* This one ends as if its guest was destroyed: without a word. */
	uint32_t slot = members[1]->slot;
	atomic_store(&members[1]->stop, true);
	assert_int_equal(pthread_join(members[1]->heart, NULL), 0);
	members[1]->beating = false;
	members[1]->process = 0;
	member_leave(members[1]);
	members[1] = join();
	assert_int_equal(members[1]->slot, slot);
	for (uint32_t i = 0; i < MEMBERS; i++)
		member_leave(members[i]);
}

/* A child of fork() has its parent's memory, and must not leave in its name. */
static void test_a_forked_child_does_not_leave_for_its_parent(void **state)
{
	struct member *member = join();
	int status = 0;

	(void)state;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		member_leave(member);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(member_is_joined(member));
	member_leave(member);
}

/* A member that was taken for dead while it was paused must not undo its successor's claim. */
static void test_one_who_was_replaced_leaves_without_a_trace(void **state)
{
	struct member *paused = join();
	uint64_t successor = (uint64_t)(paused->epoch + 1) << 32 | SLOT_JOINED;
	uint32_t slot = paused->slot;

	(void)state;
	shared_store_u64(&region_slot(region, slot)->claim, successor);
	assert_false(member_is_joined(paused));
	member_leave(paused);
	assert_int_equal(shared_load_u64(&region_slot(region, slot)->claim), successor);
}

static void test_memory_is_measured(void **state)
{
	struct member *member = join();

	(void)state;
	double slower = member_measure(member);
	assert_true(slower > 0.0);
	member_leave(member);
}

#define WITH_REGION(name) cmocka_unit_test_setup_teardown(name, open_region, close_region)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_REGION(test_a_member_shows_who_it_is),
		WITH_REGION(test_a_rank_is_what_the_launcher_says),
		WITH_REGION(test_a_full_region_is_refused_until_one_leaves),
		WITH_REGION(test_the_slot_freed_longest_ago_is_taken),
		WITH_REGION(test_leaving_is_seen_and_does_not_look_like_dying),
		WITH_REGION(test_a_killed_member_is_dead_and_its_slot_free_to_take),
		WITH_REGION(test_the_managers_verdict_counts),
		WITH_REGION(test_a_heartbeat_is_timed_by_its_observer),
		WITH_REGION(test_a_slot_whose_heart_stands_still_is_taken),
		WITH_REGION(test_a_forked_child_does_not_leave_for_its_parent),
		WITH_REGION(test_one_who_was_replaced_leaves_without_a_trace),
		WITH_REGION(test_memory_is_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
