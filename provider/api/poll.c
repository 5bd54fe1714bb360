/* SPDX-License-Identifier: BSD-3-Clause */
/* poll.c - poll sets. */
#include "api/provider.h"
#include "api/refused.h"

#include <stdlib.h>

struct poll_set {
	struct fid_poll fid;
	struct domain *domain;
	struct fid **members;
	size_t count;
};

/* A counter is ready if it changed since the application read it, or since the set last reported it. */
static bool has_something(struct fid *fid)
{
	if (fid->fclass == FI_CLASS_CQ) {
		const struct cq *cq = (const struct cq *)(void *)fid;
		return cq->wait.waiter.ready(&cq->wait.waiter);
	}
	struct cntr *cntr = (struct cntr *)(void *)fid;
	if (!cntr->wait.waiter.ready(&cntr->wait.waiter))
		return false;
	cntr_note_seen(cntr);
	return true;
}

static int set_poll(struct fid_poll *fid, void **contexts, int count)
{
	struct poll_set *set = (struct poll_set *)(void *)fid;
	int found = 0;

	domain_lock(set->domain);
	if (domain_poll_while_armed(set->domain))
		(void)domain_progress(set->domain);
	for (size_t i = 0; i < set->count && found < count; i++)
		if (has_something(set->members[i]))
			contexts[found++] = set->members[i]->context;
	domain_unlock(set->domain);
	return found;
}

/* Members of a set cannot be closed until they are removed from the set. */
static atomic_uint *users_of(struct fid *fid)
{
	return fid->fclass == FI_CLASS_CQ ? &((struct cq *)(void *)fid)->users
					  : &((struct cntr *)(void *)fid)->users;
}

static int set_add(struct fid_poll *fid, struct fid *member, uint64_t flags)
{
	struct poll_set *set = (struct poll_set *)(void *)fid;
	int result = 0;

	if (flags != 0 || (member->fclass != FI_CLASS_CQ && member->fclass != FI_CLASS_CNTR))
		return -FI_EINVAL;
	const struct domain *domain = member->fclass == FI_CLASS_CQ ? ((struct cq *)(void *)member)->domain
								    : ((struct cntr *)(void *)member)->domain;
	if (domain != set->domain)
		return -FI_EINVAL;
	domain_lock(set->domain);
	struct fid **grown = realloc(set->members, (set->count + 1) * sizeof(struct fid *));
	if (grown == NULL) {
		result = -FI_ENOMEM;
	} else {
		set->members = grown;
		set->members[set->count++] = member;
		atomic_fetch_add(users_of(member), 1);
	}
	domain_unlock(set->domain);
	return result;
}

static int set_remove(struct fid_poll *fid, struct fid *member, uint64_t flags)
{
	struct poll_set *set = (struct poll_set *)(void *)fid;
	int result = -FI_EINVAL;

	if (flags != 0)
		return -FI_EINVAL;
	domain_lock(set->domain);
	for (size_t i = 0; i < set->count; i++)
		if (set->members[i] == member) {
			set->members[i] = set->members[--set->count];
			atomic_fetch_sub(users_of(member), 1);
			result = 0;
			break;
		}
	domain_unlock(set->domain);
	return result;
}

static int set_close(struct fid *fid)
{
	struct poll_set *set = (struct poll_set *)(void *)fid;

	for (size_t i = 0; i < set->count; i++)
		atomic_fetch_sub(users_of(set->members[i]), 1);
	atomic_fetch_sub(&set->domain->objects, 1);
	free(set->members);
	free(set);
	return 0;
}

static struct fi_ops set_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = set_close,
	.bind = refuse_bind,
	.control = refuse_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_poll set_operations = {
	.size = sizeof(struct fi_ops_poll),
	.poll = set_poll,
	.poll_add = set_add,
	.poll_del = set_remove,
};

int poll_open(struct fid_domain *domain, struct fi_poll_attr *attributes, struct fid_poll **opened)
{
	if (attributes != NULL && attributes->flags != 0)
		return -FI_EINVAL;
	struct poll_set *set = calloc(1, sizeof(*set));
	if (set == NULL)
		return -FI_ENOMEM;
	set->domain = (struct domain *)(void *)domain;
	atomic_fetch_add(&set->domain->objects, 1);
	set->fid.fid.fclass = FI_CLASS_POLL;
	set->fid.fid.ops = &set_fid_operations;
	set->fid.ops = &set_operations;
	*opened = &set->fid;
	return 0;
}
