/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.c - the environment variables of fi_vicinal(7). */
#include "api/provider.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PEER_TIMEOUT_SECONDS 30.0
#define PEER_TIMEOUT_SECONDS_MAX 86400.0
/*
 * A smaller message gains nothing from a buffer in the heap: all of it is sent without asking, in the early
 * pieces of a rendezvous. A block of this size loses little to rounding up to whole pages.
 */
#define HEAP_THRESHOLD ((size_t)64 * 1024)

void provider_notice(const char *text)
{
	(void)fprintf(stderr, "vicinal: error: %s\n", text);
}

void provider_notice_once(atomic_bool *said, const char *format, ...)
{
	struct region_error error;
	va_list arguments;

	if (atomic_exchange(said, true))
		return;
	va_start(arguments, format);
	(void)vsnprintf(error.text, sizeof(error.text), format, arguments);
	va_end(arguments);
	provider_notice(error.text);
}

void provider_caution(const char *text)
{
	(void)fprintf(stderr, "vicinal: warning: %s\n", text);
}

void parameters_define(void)
{
	(void)fi_param_define(
		&provider, "region", FI_PARAM_STRING,
		"Region to use: file:/PATH, socket:/PATH, pci:ADDRESS or dax:/PATH; or up to 4 of them, "
		"separated by commas. VICINAL_REGION takes precedence. (default: the first region found: an "
		"ivshmem device, /dev/dax*, /run/vicinal/region, /dev/shm/vicinal-region)");
	(void)fi_param_define(&provider, "peer_timeout", FI_PARAM_STRING,
			      "Seconds without a heartbeat after which a peer in another guest counts as "
			      "dead. VICINAL_PEER_TIMEOUT takes precedence. (default: 30)");
	(void)fi_param_define(&provider, "allow_slow", FI_PARAM_BOOL,
			      "Use a region even if its memory is mapped uncached, which is 20 or more times "
			      "slower. VICINAL_ALLOW_SLOW takes precedence. (default: no)");
	(void)fi_param_define(
		&provider, "heap_threshold", FI_PARAM_STRING,
		"With libvicinal-heap.so preloaded, the least bytes of an allocation that is placed in the "
		"region; K, M or G may follow. VICINAL_HEAP_THRESHOLD takes precedence. (default: 64K)");
	(void)fi_param_define(&provider, "progress", FI_PARAM_STRING,
			      "How a process waits: poll (never yield the core), adaptive (poll, then yield, "
			      "then sleep) or block (sleep after some microseconds). VICINAL_PROGRESS takes "
			      "precedence. (default: adaptive)");
	(void)fi_param_define(&provider, "single_copy", FI_PARAM_STRING,
			      "Copy large messages once, by both ends at the same time: auto (between "
			      "processes if it was measured to be faster), on (wherever it is proved "
			      "possible) or off. VICINAL_SINGLE_COPY takes precedence. (default: auto)");
	(void)fi_param_define(&provider, "net", FI_PARAM_STRING,
			      "Provider that reaches peers outside the region, such as tcp or verbs;ofi_rxm; "
			      "off for none. VICINAL_NET takes precedence. (default: the first of "
			      "verbs;ofi_rxm, tcp and others that works)");
	(void)fi_param_define(
		&provider, "net_interface", FI_PARAM_STRING,
		"Interface that reaches peers outside the region, such as eth0. VICINAL_NET_INTERFACE takes "
		"precedence. (default: the provider's first, loopback last)");
	(void)fi_param_define(
		&provider, "send_queue", FI_PARAM_STRING,
		"Memory of each endpoint for messages to busy peers; if it is full, sends wait. K, M or G "
		"may follow. VICINAL_SEND_QUEUE takes precedence. (default: 64M)");
	(void)fi_param_define(
		&provider, "unexpected", FI_PARAM_STRING,
		"Messages that each endpoint keeps for receives that are not posted yet, and KiB of their "
		"bytes; half of them for one peer, which then is paused. K, M or G may follow. "
		"VICINAL_UNEXPECTED takes precedence. (default: 1M)");
	(void)fi_param_define(&provider, "rank", FI_PARAM_STRING,
			      "Rank that 'vicinal paths' shows for this process; only a label. Set "
			      "VICINAL_RANK. (default: PMIX_RANK, PMI_RANK or OMPI_COMM_WORLD_RANK)");
	(void)fi_param_define(&provider, "job", FI_PARAM_STRING,
			      "Number of the job that 'vicinal paths' shows for this process; only a label. "
			      "Set VICINAL_JOB. (default: 0, none)");
	tuning_define();
}

const char *parameter_text(const char *variable, const char *name)
{
	const char *value = getenv(variable);
	char *configured = NULL;

	if (value != NULL)
		return value;
	if (fi_param_get_str(&provider, name, &configured) == 0)
		return configured;
	return NULL;
}

/*
 * Whether FI_PROVIDER, a list of provider names, contains `vicinal`. A list that begins with ^ names excluded
 * providers.
 */
static bool is_named(void)
{
	const char *list = getenv("FI_PROVIDER");
	const size_t length = strlen(PROVIDER_NAME);

	if (list == NULL || *list == '^')
		return false;
	while (list != NULL) {
		size_t name = strcspn(list, ",");
		if (name == length && strncasecmp(list, PROVIDER_NAME, length) == 0)
			return true;
		list = list[name] == ',' ? list + name + 1 : NULL;
	}
	return false;
}

bool parameter_network(const char **core, const char **interface)
{
	const char *name = parameter_text("VICINAL_NET", "net");

	*interface = parameter_text("VICINAL_NET_INTERFACE", "net_interface");
	if (*interface != NULL && **interface == '\0')
		*interface = NULL;
	*core = name != NULL && *name != '\0' && strcmp(name, "auto") != 0 ? name : NULL;
	return *core == NULL || strcmp(*core, "off") != 0;
}

/*
 * Whether the provider is wanted without a region. On a host without a region it offers itself only if the
 * user names it, or a network for it.
 */
static bool is_wanted(void)
{
	const char *core = NULL;
	const char *interface = NULL;

	return parameter_network(&core, &interface) && (core != NULL || interface != NULL || is_named());
}

static char *region_names[ATTACHMENTS_MAX];
static uint32_t region_count;
static int region_result;
static pthread_once_t region_once = PTHREAD_ONCE_INIT;

/* Adds a region whose name has `length` characters. */
static int add_region(const char *name, size_t length, struct region_error *error)
{
	if (length == 0)
		return region_fail(error, -EINVAL,
				   "VICINAL_REGION has an empty entry in its list: write file:/PATH, "
				   "socket:/PATH, pci:ADDRESS or dax:/PATH, separated by single commas");
	if (region_count == ATTACHMENTS_MAX)
		return region_fail(error, -E2BIG, "VICINAL_REGION names more than %u regions: leave some out",
				   ATTACHMENTS_MAX);
	region_names[region_count] = strndup(name, length);
	if (region_names[region_count] == NULL)
		return region_fail(error, -ENOMEM, "no memory is left to attach a region: free some");
	region_count++;
	return 0;
}

static int split_regions(const char *list, struct region_error *error)
{
	for (int result = 0;; list++) {
		size_t length = strcspn(list, ",");
		result = add_region(list, length, error);
		list += length;
		if (result != 0 || *list == '\0')
			return result;
	}
}

/* Compares the regions' ids, because one region may have several names. */
static int compare_regions(struct region *const regions[], uint32_t last, struct region_error *error)
{
	for (uint32_t i = 0; i < last; i++)
		if (memcmp(regions[i]->id, regions[last]->id, sizeof(regions[i]->id)) == 0)
			return region_fail(
				error, -EINVAL,
				"VICINAL_REGION names one region twice (%.1024s and %.1024s are the "
				"same): name each once",
				regions[i]->name, regions[last]->name);
	return 0;
}

/* Whether each region can be attached, and all are different. */
static int try_regions(struct region_error *error)
{
	struct region *regions[ATTACHMENTS_MAX] = {NULL};
	int result = 0;

	for (uint32_t i = 0; i < region_count && result == 0; i++) {
		result = region_attach(region_names[i], &regions[i], error);
		if (result == 0)
			result = compare_regions(regions, i, error);
	}
	for (uint32_t i = 0; i < region_count; i++)
		region_detach(regions[i]);
	return result;
}

static int find_unnamed(struct region_error *error)
{
	char name[PATH_MAX];
	int result = region_discover(name, error);

	/*
	 * A user who wants the provider without a region gets a private one, and reaches all peers over the
	 * network.
	 */
	if ((result == -ENODEV || result == -ENODATA) && is_wanted()) {
		/* A device for a region that holds none is most likely a mistake. */
		if (result == -ENODATA)
			provider_caution(error->text);
		else
			FI_INFO(&provider, FI_LOG_CORE, "%s\n", error->text);
		(void)snprintf(name, sizeof(name), "%s", REGION_PRIVATE);
		result = 0;
	}
	return result == 0 ? add_region(name, strlen(name), error) : result;
}

static void find_regions(void)
{
	const char *configured = parameter_text("VICINAL_REGION", "region");
	const bool unnamed = configured == NULL || *configured == '\0';
	struct region_error error;

	if (!unnamed) {
		region_result = split_regions(configured, &error);
		if (region_result == 0)
			region_result = try_regions(&error);
	} else {
		region_result = find_unnamed(&error);
	}
	if (region_result == 0)
		return;
	/*
	 * A host without a region is normal, so only the log says so. An error in a region must reach the
	 * user.
	 */
	if (unnamed && (region_result == -ENODEV || region_result == -ENODATA))
		FI_INFO(&provider, FI_LOG_CORE, "%s\n", error.text);
	else
		provider_notice(error.text);
}

int parameter_regions(const char *const **names, uint32_t *count)
{
	(void)pthread_once(&region_once, find_regions);
	*names = (const char *const *)region_names;
	*count = region_result == 0 ? region_count : 0;
	return region_result == 0 ? 0 : -FI_ENODATA;
}

bool parameter_region_is_discovered(void)
{
	const char *configured = parameter_text("VICINAL_REGION", "region");

	return configured == NULL || *configured == '\0';
}

uint64_t parameter_peer_timeout(void)
{
	static atomic_bool said;
	const char *text = parameter_text("VICINAL_PEER_TIMEOUT", "peer_timeout");
	double seconds = PEER_TIMEOUT_SECONDS;

	if (text != NULL && *text != '\0') {
		char *end = NULL;
		seconds = strtod(text, &end);
		if (*end != '\0' || !(seconds > 0) || seconds > PEER_TIMEOUT_SECONDS_MAX) {
			seconds = PEER_TIMEOUT_SECONDS;
			provider_notice_once(
				&said,
				"VICINAL_PEER_TIMEOUT=%.64s is not a number of seconds above 0 and "
				"up to 86400: using %g, correct it",
				text, seconds);
		}
	}
	return (uint64_t)(seconds * 1e9);
}

bool parameter_allow_slow(void)
{
	const char *text = getenv("VICINAL_ALLOW_SLOW");
	int allowed = 0;

	if (text != NULL)
		return *text == '1' || *text == 'y' || *text == 'Y';
	return fi_param_get_bool(&provider, "allow_slow", &allowed) == 0 && allowed != 0;
}

/* A variable that is a number, possibly with K, M or G. */
struct number_parameter {
	const char *variable;
	const char *name; /* of libfabric's parameter */
	size_t least;
	size_t most;
	size_t usual; /* the value without a variable */
	const char *advice;
	atomic_bool said; /* the user was told of a wrong value */
};

static size_t number_of(struct number_parameter *parameter)
{
	const char *text = parameter_text(parameter->variable, parameter->name);

	if (text == NULL || *text == '\0')
		return parameter->usual;
	size_t value = size_of_text(text);
	if (value >= parameter->least && value <= parameter->most)
		return value;
	provider_notice_once(&parameter->said, "%s=%.64s is %s", parameter->variable, text,
			     parameter->advice);
	return parameter->usual;
}

size_t parameter_heap_threshold(void)
{
	static struct number_parameter threshold = {
		.variable = "VICINAL_HEAP_THRESHOLD",
		.name = "heap_threshold",
		.least = 1,
		.most = SIZE_MAX,
		.usual = HEAP_THRESHOLD,
		.advice = "not a size above 0: using 64K, correct it (such as 65536, 64K or 1M)",
	};

	return number_of(&threshold);
}

size_t parameter_send_queue(void)
{
	static struct number_parameter queue = {
		.variable = "VICINAL_SEND_QUEUE",
		.name = "send_queue",
		.least = 1,
		.most = SIZE_MAX,
		.usual = SEND_QUEUE_BYTES,
		.advice = "not a size above 0: using 64M, correct it (such as 1048576, 16M or 1G)",
	};

	return number_of(&queue);
}

uint32_t parameter_unexpected(void)
{
	static struct number_parameter unexpected = {
		.variable = "VICINAL_UNEXPECTED",
		.name = "unexpected",
		.least = KEPT_MESSAGES_LEAST,
		.most = KEPT_MESSAGES_MOST,
		.usual = KEPT_MESSAGES_MAX,
		.advice = "not a number from 1K to 1G: using 1M, correct it (such as 65536, 64K or 4M)",
	};

	return (uint32_t)number_of(&unexpected);
}

static enum progress_mode progress_mode = PROGRESS_ADAPTIVE;
static pthread_once_t progress_once = PTHREAD_ONCE_INIT;

static void find_progress(void)
{
	static const char *const names[] = {
		[PROGRESS_POLL] = "poll", [PROGRESS_ADAPTIVE] = "adaptive", [PROGRESS_BLOCK] = "block"};
	static atomic_bool said;
	const char *text = parameter_text("VICINAL_PROGRESS", "progress");

	if (text == NULL || *text == '\0')
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i]) == 0) {
			progress_mode = (enum progress_mode)i;
			return;
		}
	provider_notice_once(
		&said,
		"VICINAL_PROGRESS=%.64s is none of poll, adaptive and block: using adaptive, correct it",
		text);
}

enum progress_mode parameter_progress(void)
{
	(void)pthread_once(&progress_once, find_progress);
	return progress_mode;
}

enum single_copy_policy parameter_single_copy(void)
{
	static atomic_bool said;
	const char *text = parameter_text("VICINAL_SINGLE_COPY", "single_copy");

	if (text == NULL || *text == '\0' || strcmp(text, "auto") == 0)
		return SINGLE_COPY_AUTO;
	if (strcmp(text, "on") == 0)
		return SINGLE_COPY_ON;
	if (strcmp(text, "off") == 0)
		return SINGLE_COPY_OFF;
	provider_notice_once(
		&said, "VICINAL_SINGLE_COPY=%.64s is neither auto, on nor off: using auto, correct it", text);
	return SINGLE_COPY_AUTO;
}
