/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * enable.c - an enabled endpoint joins its regions, measures their memory, and is connected to its queues and
 * counters.
 */
#include "api/extension.h"
#include "api/provider.h"

/* A region that is slower than private memory by this factor is mapped uncached or write-combining. */
#define SLOW_MEMORY 20.0

static atomic_uint endpoints_opened;

/*
 * Computes the messenger's flags of each kind of call. A call without a flags argument uses the endpoint's
 * default flags; a call with flags uses only its own. Without FI_SELECTIVE_COMPLETION, every operation has a
 * completion.
 */
void endpoint_settle_flags(struct endpoint *endpoint)
{
	const uint64_t kept = FI_DELIVERY_COMPLETE | FI_INJECT;
	uint64_t send_always = endpoint->send_selective ? 0 : FI_COMPLETION;
	uint64_t receive_always = endpoint->receive_selective ? 0 : FI_COMPLETION;

	endpoint->send_flags =
		send_always | (send_level(endpoint->transmit_operation_flags) & (kept | FI_COMPLETION));
	endpoint->send_message_flags = send_always;
	const uint64_t levels = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
	endpoint->remote_flags =
		send_always | (endpoint->transmit_operation_flags & (levels | FI_INJECT | FI_COMPLETION));
	/*
	 * An injected operation has no completion, but counters count it at the level that the endpoint asks
	 * for.
	 */
	endpoint->remote_inject_flags = FI_INJECT | (endpoint->transmit_operation_flags &
						     (FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE));
	endpoint->receive_flags =
		receive_always | (endpoint->receive_operation_flags & (FI_COMPLETION | FI_MULTI_RECV));
	endpoint->receive_message_flags = receive_always;
}

/*
 * Decides whether peers and this endpoint access each other's memory in the region directly, past the
 * messages in the rings. Direct access is off if the application was promised that reads and writes come
 * after earlier messages.
 */
static void settle_reach(const struct endpoint *endpoint)
{
	struct messenger *messenger = endpoint->messenger;
	const struct registration_table *table = &endpoint->domain->registrations;

	messenger->reaches = messenger->reaches && (endpoint->transmit_order & ORDER_AFTER_SENDS) == 0;
	messenger->exposes = messenger->exposes && (endpoint->receive_order & ORDER_AFTER_SENDS) == 0;
	for (uint32_t index = 0; index < table->capacity; index++)
		if (registrations_at(table, index) != NULL)
			direct_expose(messenger, registrations_at(table, index));
}

/* The remedy for slow memory depends on the kind of region. */
static const char *remedy_of(const struct region *region)
{
	return region->kind == REGION_PCI ? "Give the guest the region as an nvdimm (/dev/dax), or use a "
					    "host whose KVM maps the BAR write-back"
					  : "Keep the region in memory that is mapped write-back";
}

/* Reports an uncached mapping with its remedy, instead of using it silently. */
static int check_memory(const struct messenger *messenger)
{
	const struct transport *transport = messenger->transport;
	const struct region *slowest = transport->attachments[0].region;
	double slower = 0;
	struct region_error error;

	for (uint32_t i = 0; i < transport->attachment_count; i++) {
		const struct region *region = transport->attachments[i].region;
		double measured = member_measure(transport->attachments[i].member, SLOW_MEMORY);
		FI_INFO(&provider, FI_LOG_EP_CTRL,
			"a copy through region %s takes %.1f times as long as one through private memory\n",
			region->name, measured);
		slowest = measured > slower ? region : slowest;
		slower = measured > slower ? measured : slower;
	}
	if (slower < SLOW_MEMORY) {
		extension_offer_heap(messenger);
		extension_offer_region(messenger);
		return 0;
	}
	int result = region_fail(
		&error, -FI_EIO,
		"the memory of region %.1024s is %.0f times slower than private memory: it is mapped "
		"uncached or write-combining. %s, or set VICINAL_ALLOW_SLOW=1 to use the region nevertheless",
		slowest->name, slower, remedy_of(slowest));
	if (parameter_allow_slow()) {
		provider_warn(FI_LOG_EP_CTRL, "%s\n", error.text);
		return 0;
	}
	provider_notice(error.text);
	return result;
}

static struct completion_counter *counter_of(struct cntr *cntr)
{
	return cntr != NULL ? &cntr->counter : NULL;
}

static int attach(struct cq *cq, struct endpoint *endpoint)
{
	return cq != NULL ? endpoint_list_add(&cq->endpoints, endpoint) : 0;
}

static void detach(struct cq *cq, const struct endpoint *endpoint)
{
	if (cq != NULL)
		endpoint_list_remove(&cq->endpoints, endpoint);
}

/* Joins all regions of the domain, or none. */
static int join(struct endpoint *endpoint, struct region_error *error)
{
	const struct domain *domain = endpoint->domain;
	uint32_t number = atomic_fetch_add_explicit(&endpoints_opened, 1, memory_order_relaxed);
	int result = messenger_open(&endpoint->messenger, domain->regions[0], number,
				    parameter_peer_timeout(), error);

	if (result != 0)
		return result;
	for (uint32_t i = 1; i < domain->region_count && result == 0; i++)
		result = messenger_join(endpoint->messenger, domain->regions[i], number, error);
	if (result != 0) {
		messenger_close(endpoint->messenger);
		endpoint->messenger = NULL;
	}
	return result;
}

int endpoint_enable(struct endpoint *endpoint)
{
	struct region_error error;
	uint64_t receives = endpoint->capabilities & FI_RECV;
	uint64_t sends = endpoint->capabilities & FI_SEND;
	uint64_t reaches = endpoint->capabilities & (FI_READ | FI_WRITE);

	if (endpoint->messenger != NULL)
		return 0;
	if (endpoint->av == NULL)
		return -FI_ENOAV;
	/*
	 * fi_endpoint(3) requires queues for all operations that may be initiated on the endpoint, so an
	 * endpoint of FI_MSG without a direction needs both. libfabric's shm, sm2, verbs and ofi_rxm require
	 * the same. Here a counter is enough.
	 */
	if ((sends != 0 && endpoint->send_cq == NULL && endpoint->send_cntr == NULL) ||
	    (receives != 0 && endpoint->receive_cq == NULL && endpoint->receive_cntr == NULL) ||
	    (sends == 0 && reaches != 0 && endpoint->send_cq == NULL && endpoint->read_cntr == NULL &&
	     endpoint->write_cntr == NULL))
		return -FI_ENOCQ;
	int result = join(endpoint, &error);
	if (result != 0) {
		provider_notice(error.text);
		return result;
	}
	struct messenger *messenger = endpoint->messenger;
	/*
	 * The core is opened before the application's allocator gets the heap, so that the core's own
	 * allocations stay out of the heap.
	 */
	result = network_enable(endpoint);
	if (result == 0)
		result = check_memory(messenger);
	if (result == 0)
		result = single_copy_open(messenger, parameter_single_copy());
	if (result == 0)
		result = attach(endpoint->send_cq, endpoint);
	if (result == 0)
		result = attach(endpoint->receive_cq, endpoint);
	if (result != 0) {
		detach(endpoint->send_cq, endpoint);
		messenger_close(messenger);
		endpoint->messenger = NULL;
		return result;
	}
	messenger->send_completions = endpoint->send_cq != NULL ? &endpoint->send_cq->queue : NULL;
	messenger->receive_completions = endpoint->receive_cq != NULL ? &endpoint->receive_cq->queue : NULL;
	messenger->send_counter = counter_of(endpoint->send_cntr);
	messenger->receive_counter = counter_of(endpoint->receive_cntr);
	messenger->read_counter = counter_of(endpoint->read_cntr);
	messenger->write_counter = counter_of(endpoint->write_cntr);
	messenger->remote_read_counter = counter_of(endpoint->remote_read_cntr);
	messenger->remote_write_counter = counter_of(endpoint->remote_write_cntr);
	messenger->thresholds = endpoint->domain->thresholds;
	messenger->send_queues.most = parameter_send_queue();
	messenger->send_queues.free = endpoint->transmit_size;
	messenger->send_queues.notice = provider_caution;
	messenger_keep_most(messenger, parameter_unexpected());
	messenger->kept.notice = provider_caution;
	messenger->owner = endpoint;
	messenger->vector = endpoint->av->number;
	messenger->registrations = &endpoint->domain->registrations;
	messenger->multi_receive_minimum = endpoint->multi_receive_minimum;
	endpoint_settle_flags(endpoint);
	settle_reach(endpoint);
	domain_joined(endpoint->domain, messenger->transport);
	return 0;
}
