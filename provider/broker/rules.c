/* SPDX-License-Identifier: BSD-3-Clause */
/* rules.c - see rules.h. */
#include "broker/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char **text, uint32_t *number)
{
	char *end = NULL;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	unsigned long value = strtoul(*text, &end, 10);
	*text = end;
	*number = (uint32_t)value;
	/* The highest number is the kernel's for "none". */
	return errno == 0 && value < UINT32_MAX;
}

static bool read_rule(const char **text, struct rules *rules)
{
	if (strncmp(*text, "any", 3) == 0) {
		*text += 3;
		rules->anyone = true;
		return true;
	}
	if (rules->count == RULES_MAX)
		return false;
	struct rule *rule = &rules->rule[rules->count++];
	rule->group = strncmp(*text, "gid:", 4) == 0;
	if (!rule->group && strncmp(*text, "uid:", 4) != 0)
		return false;
	*text += 4;
	if (!read_number(text, &rule->first))
		return false;
	rule->last = rule->first;
	if (**text != '-')
		return true;
	++*text;
	return read_number(text, &rule->last) && rule->last >= rule->first;
}

bool rules_read(struct rules *rules, const char *text)
{
	*rules = (struct rules){0};
	while (read_rule(&text, rules)) {
		if (*text == '\0')
			return true;
		if (*text++ != ',')
			break;
	}
	return false;
}

static bool matches(const struct rules *rules, bool group, uint32_t number)
{
	for (uint32_t i = 0; i < rules->count; i++)
		if (rules->rule[i].group == group && number >= rules->rule[i].first &&
		    number <= rules->rule[i].last)
			return true;
	return false;
}

static bool has_group_rule(const struct rules *rules)
{
	for (uint32_t i = 0; i < rules->count; i++)
		if (rules->rule[i].group)
			return true;
	return false;
}

/* The groups besides the first, of which a process may have 65536. */
static bool matches_more_groups(const struct rules *rules, int connection)
{
	socklen_t bytes = 0;
	bool found = false;

	if (getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE)
		return false;
	gid_t *groups = malloc(bytes);
	if (groups == NULL)
		return false;
	if (getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
		for (size_t i = 0; i < bytes / sizeof(*groups) && !found; i++)
			found = matches(rules, true, groups[i]);
	free(groups);
	return found;
}

bool rules_allow(const struct rules *rules, int connection, const struct ucred *peer)
{
	return rules->anyone || matches(rules, false, peer->uid) || matches(rules, true, peer->gid) ||
	       (has_group_rule(rules) && matches_more_groups(rules, connection));
}
