/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.c - completion queues in all formats, and descriptions of errors. */
#include "api/provider.h"
#include "api/refused.h"

#include <limits.h>
#include <stdlib.h>

_Static_assert(offsetof(struct completion, context) == offsetof(struct fi_cq_tagged_entry, op_context) &&
		       offsetof(struct completion, flags) == offsetof(struct fi_cq_tagged_entry, flags) &&
		       offsetof(struct completion, length) == offsetof(struct fi_cq_tagged_entry, len) &&
		       offsetof(struct completion, buffer) == offsetof(struct fi_cq_tagged_entry, buf) &&
		       offsetof(struct completion, data) == offsetof(struct fi_cq_tagged_entry, data) &&
		       offsetof(struct completion, tag) == offsetof(struct fi_cq_tagged_entry, tag),
	       "each format is a prefix of struct completion");

/*
 * A waiting rank reads the queue in a loop. What an MPI library does between two reads costs more than a
 * poll: MPICH yields its core, a system call, each time. So the first reads after a read that found something
 * poll several times (thresholds.polls_per_read); 64 polls take 1 to 2 us. Later reads poll once, because the
 * answer is no longer microseconds away.
 *
 * Slots that arrive and pieces that are copied count as found although no operation ended, because a large
 * message is on its way. If no operation waits for a peer, one poll is enough: MPICH reads on after its
 * operation completed, and keeps untagged receives posted for ever. Measured: docs/decisions/0002.
 */
#define READS_WITH_POLLS 32U
/* If ranks share cores, the awaited rank may need this core before its message can arrive. */
#define POLLS_PER_READ_CROWDED 8U
/* A read ends after this many polls even if slots keep arriving. */
#define POLLS_MAX 1024U

/* With VICINAL_PROGRESS=block, reads sleep sooner. */
#define READS_WITH_POLLS_BLOCKING 4U

/*
 * Counts events that a reader may wait for and that add no entry to the queue: counters counted, or messages
 * that waited for busy peers left and made room for the next.
 */
static uint64_t counted(const struct cq *cq)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < cq->endpoints.count; i++) {
		const struct messenger *messenger = cq->endpoints.items[i]->messenger;
		sum += messenger->counted + messenger->send_queues.gone;
	}
	return sum;
}

static bool awaits(const struct cq *cq)
{
	for (size_t i = 0; i < cq->endpoints.count; i++)
		if (messenger_awaits(cq->endpoints.items[i]->messenger))
			return true;
	return false;
}

static void progress(struct cq *cq)
{
	uint32_t with_polls =
		cq->domain->mode == PROGRESS_BLOCK ? READS_WITH_POLLS_BLOCKING : READS_WITH_POLLS;
	uint32_t polls_per_read = cq->domain->thresholds.polls_per_read;
	if (polls_per_read > POLLS_PER_READ_CROWDED && domain_is_crowded(cq->domain))
		polls_per_read = POLLS_PER_READ_CROWDED;
	uint32_t polls = cq->empty_reads < with_polls && awaits(cq) ? polls_per_read : 1;

	if (!domain_poll_while_armed(cq->domain))
		return;
	uint64_t counted_before = counted(cq);
	for (uint32_t i = 0; i < POLLS_MAX && polls > 0; i++, polls--) {
		uint32_t found = 0;
		for (size_t k = 0; k < cq->endpoints.count; k++)
			found += messenger_progress(cq->endpoints.items[k]->messenger);
		if (!completion_is_empty(&cq->queue))
			return;
		if (found > 0) {
			cq->empty_reads = 0;
			if (counted(cq) != counted_before)
				return;
			polls = polls_per_read;
		} else if (polls > 1) {
			cpu_pause();
		}
	}
}

/*
 * The address vector of the receiving endpoint names a sender. Completions outlive their endpoint, so the
 * vector may be gone.
 */
static fi_addr_t name_sender(const struct cq *cq, const struct completion *entry)
{
	for (size_t i = 0; i < cq->endpoints.count; i++)
		if (cq->endpoints.items[i]->av->number == entry->vector)
			return av_name_sender(cq->endpoints.items[i]->av, entry->source);
	return FI_ADDR_NOTAVAIL;
}

/* Moves up to `count` entries to the application; `sources` may be NULL. */
static ssize_t take(struct cq *cq, void *buffer, size_t count, fi_addr_t *sources)
{
	struct completion_queue *queue = &cq->queue;
	char *to = buffer;
	size_t taken = 0;

	for (; taken < count && !completion_is_empty(queue); taken++) {
		const struct completion *entry = completion_first(queue);
		if (__builtin_expect(entry->error != 0, 0))
			break;
		if (cq->format == FI_CQ_FORMAT_TAGGED)
			memcpy(to, entry, sizeof(struct fi_cq_tagged_entry));
		else
			memcpy(to, entry, cq->entry_bytes);
		to += cq->entry_bytes;
		if (sources != NULL)
			sources[taken] = name_sender(cq, entry);
		queue->head++;
	}
	if (taken > 0)
		return (ssize_t)taken;
	/* If the first entry is no error, the application asked for 0 entries: it only wants progress. */
	if (!completion_is_empty(queue))
		return completion_first(queue)->error != 0 ? -FI_EAVAIL : 0;
	return queue->lost > 0 ? -FI_EOVERRUN : -FI_EAGAIN;
}

/* A rank that waits in MPI_Probe() peeks in a loop. A peek that finds no message counts as an empty read. */
static bool is_empty_peek(struct completion_queue *queue)
{
	return completion_first(queue)->error == FI_ENOMSG;
}

/*
 * Notes a read that found nothing. Returns how many such reads are in a row; 0 if operations that only
 * counters count ended since the last read. Such operations are work: MPICH reads the queue after each put
 * and get, finds nothing, and is not waiting.
 */
static uint32_t note_empty(struct cq *cq)
{
	uint64_t now = counted(cq);

	cq->empty_reads = now != cq->counted ? 0 : cq->empty_reads + 1;
	cq->counted = now;
	return cq->empty_reads;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buffer, size_t count, fi_addr_t *sources)
{
	struct cq *cq = (struct cq *)(void *)fid;
	struct domain *domain = cq->domain;
	bool begun = false;

	for (bool again = true;; again = false) {
		uint32_t empty = 0;
		domain_lock(domain);
		if (again && __builtin_expect(idle_is_near(domain, cq->empty_reads), 0)) {
			begun = true;
			idle_poll_begins();
		}
		/* A read of 0 entries asks for progress. */
		if (completion_is_empty(&cq->queue) || count == 0)
			progress(cq);
		ssize_t result = take(cq, buffer, count, sources);
		if (result == -FI_EAGAIN || (result == -FI_EAVAIL && is_empty_peek(&cq->queue))) {
			empty = note_empty(cq);
		} else {
			cq->empty_reads = 0;
			domain_found(domain);
		}
		domain_unlock(domain);
		/* After a sleep there most likely is an entry. */
		if (empty == 0 || !idle_pause(domain, empty, begun && again) || !again ||
		    result != -FI_EAGAIN)
			return result;
	}
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
	return cq_readfrom(fid, buffer, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buffer, uint64_t flags)
{
	struct cq *cq = (struct cq *)(void *)fid;
	struct completion_queue *queue = &cq->queue;
	ssize_t result = -FI_EAGAIN;

	(void)flags;
	domain_lock(cq->domain);
	if (!completion_is_empty(queue) && completion_first(queue)->error != 0) {
		const struct completion *entry = completion_first(queue);
		buffer->op_context = entry->context;
		buffer->flags = entry->flags;
		buffer->len = entry->length;
		buffer->buf = entry->buffer;
		buffer->data = entry->data;
		buffer->tag = entry->tag;
		buffer->olen = entry->overflow;
		buffer->err = entry->error;
		buffer->prov_errno = entry->error;
		/* A static text needs no buffer of the application. */
		buffer->err_data = NULL;
		if (!cq->domain->fabric->short_errors)
			buffer->err_data_size = 0;
		FI_INFO(&provider, FI_LOG_CQ, "an operation failed (%s): %s\n", fi_strerror(entry->error),
			entry->reason);
		queue->head++;
		result = 1;
	}
	domain_unlock(cq->domain);
	return result;
}

static const char *reason_of(int error)
{
	switch (error) {
	case FI_ETRUNC:
		return "the message is longer than the receive's buffer";
	case FI_ECANCELED:
		return "the receive was cancelled";
	case FI_ENOMSG:
		return "no such message is waiting";
	case FI_ECONNRESET:
		return "the peer died";
	case FI_ECONNABORTED:
		return "the peer left the region, or no longer reads its messages";
	case EPROTO:
		return "the peer broke the protocol of the region: its memory was overwritten, or the peer "
		       "is hostile";
	case FI_ENOMEM:
		return "no memory was left for the peer's message";
	default:
		return fi_strerror(error);
	}
}

static const char *cq_strerror(struct fid_cq *fid, int error, const void *data, char *buffer, size_t length)
{
	const char *text = reason_of(error < 0 ? -error : error);

	(void)fid;
	(void)data;
	if (buffer != NULL && length > 0) {
		size_t copied = strlen(text) < length ? strlen(text) : length - 1;
		memcpy(buffer, text, copied);
		buffer[copied] = '\0';
		return buffer;
	}
	return text;
}

/* A call that waits for a number of completions. */
struct cq_waiter {
	struct waiter waiter; /* must be first */
	struct cq *cq;
	uint32_t least;
};

static bool has_enough(const struct waiter *waiter)
{
	const struct cq_waiter *self = (const struct cq_waiter *)(const void *)waiter;
	struct completion_queue *queue = &self->cq->queue;

	return queue->tail - queue->head >= self->least || queue->lost > 0 ||
	       (!completion_is_empty(queue) && completion_first(queue)->error != 0) ||
	       atomic_load_explicit(&self->cq->signalled, memory_order_relaxed);
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buffer, size_t count, fi_addr_t *sources,
			    const void *condition, int timeout)
{
	struct cq *cq = (struct cq *)(void *)fid;
	uint64_t least = cq->threshold ? (uintptr_t)condition : 1;
	struct cq_waiter self = {
		.waiter = {.ready = has_enough, .word = &cq->wait.word, .descriptor = -1},
		.cq = cq,
		/* A larger number than the call can return would never be reached. */
		.least = least < 1 ? 1 : (uint32_t)(least < count ? least : (count < 1 ? 1 : count)),
	};

	(void)wait_until_ready(cq->domain, &self.waiter, wait_end(timeout));
	domain_lock(cq->domain);
	ssize_t result = take(cq, buffer, count, sources);
	if (result != -FI_EAGAIN)
		domain_found(cq->domain);
	domain_unlock(cq->domain);
	if (result == -FI_EAGAIN)
		atomic_store_explicit(&cq->signalled, false, memory_order_relaxed);
	return result;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buffer, size_t count, const void *condition, int timeout)
{
	return cq_sreadfrom(fid, buffer, count, NULL, condition, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct cq *cq = (struct cq *)(void *)fid;

	atomic_store_explicit(&cq->signalled, true, memory_order_relaxed);
	wait_signal(&cq->wait);
	return 0;
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = (struct cq *)(void *)fid;
	bool bound = false;

	domain_lock(cq->domain);
	for (const struct endpoint *endpoint = cq->domain->endpoints; endpoint != NULL;
	     endpoint = endpoint->next)
		bound = bound || endpoint->send_cq == cq || endpoint->receive_cq == cq;
	domain_unlock(cq->domain);
	if (bound || atomic_load(&cq->users) != 0)
		return -FI_EBUSY;
	wait_close(&cq->wait);
	completion_close(&cq->queue);
	atomic_fetch_sub(&cq->domain->objects, 1);
	free(cq->endpoints.items);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *argument)
{
	return wait_control(&((struct cq *)(void *)fid)->wait, command, argument);
}

static struct fi_ops cq_fid_operations = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = refuse_bind,
	.control = cq_control,
	.ops_open = refuse_ops_open,
};

static struct fi_ops_cq cq_operations = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

/* For the wait object: whether a read would return an entry or an error. */
static bool has_any(const struct waiter *waiter)
{
	const struct cq *cq =
		(const struct cq *)(const void *)((const char *)waiter - offsetof(struct cq, wait));

	return !completion_is_empty(&cq->queue) || cq->queue.lost > 0;
}

static size_t entry_bytes(enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return 0;
	}
}

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attributes, struct fid_cq **opened, void *context)
{
	enum fi_cq_format format =
		attributes->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_TAGGED : attributes->format;

	if (entry_bytes(format) == 0)
		return -FI_ENOSYS;
	struct cq *cq = calloc(1, sizeof(*cq));
	if (cq == NULL || completion_open(&cq->queue, attributes->size) != 0) {
		free(cq);
		return -FI_ENOMEM;
	}
	cq->domain = (struct domain *)(void *)domain;
	int result = wait_open(&cq->wait, cq->domain, attributes->wait_obj, attributes->wait_set, has_any);
	if (result != 0) {
		completion_close(&cq->queue);
		free(cq);
		return result;
	}
	atomic_fetch_add(&cq->domain->objects, 1);
	cq->format = format;
	cq->entry_bytes = entry_bytes(format);
	cq->threshold = attributes->wait_cond == FI_CQ_COND_THRESHOLD;
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_operations;
	cq->fid.ops = &cq_operations;
	*opened = &cq->fid;
	return 0;
}
