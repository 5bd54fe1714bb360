/* SPDX-License-Identifier: BSD-3-Clause */
/* work.c - see work.h. */
#include "fuzz/work.h"

#include <sys/types.h>
#include <sys/uio.h>

#include "region/copy.h"

static uint64_t copied;

uint64_t work_copied(void)
{
	return copied;
}

/* The linker prescribes these names. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

#if defined(__clang__)
#define COPIES_BY_SANITIZER __has_feature(address_sanitizer)
#else
#define COPIES_BY_SANITIZER 0
#endif

#if COPIES_BY_SANITIZER
/* clang's AddressSanitizer calls its own function. Wrapping memcpy() would also wrap the sanitizer's. */
void *__real___asan_memcpy(void *to, const void *from, size_t length);
void *__wrap___asan_memcpy(void *to, const void *from, size_t length);
void *__wrap___asan_memcpy(void *to, const void *from, size_t length)
{
	copied += length;
	return __real___asan_memcpy(to, from, length);
}
#else
void *__real_memcpy(void *to, const void *from, size_t length);
void *__wrap_memcpy(void *to, const void *from, size_t length);
void *__wrap_memcpy(void *to, const void *from, size_t length)
{
	copied += length;
	return __real_memcpy(to, from, length);
}
#endif

void __real_copy_linewise_in(void *to, const shared_bytes *from, size_t length);
void __wrap_copy_linewise_in(void *to, const shared_bytes *from, size_t length);
void __wrap_copy_linewise_in(void *to, const shared_bytes *from, size_t length)
{
	copied += length;
	__real_copy_linewise_in(to, from, length);
}

void __real_copy_past_cache_out(shared_bytes *to, const void *from, size_t length);
void __wrap_copy_past_cache_out(shared_bytes *to, const void *from, size_t length);
void __wrap_copy_past_cache_out(shared_bytes *to, const void *from, size_t length)
{
	copied += length;
	__real_copy_past_cache_out(to, from, length);
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
				const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	ssize_t done = __real_process_vm_readv(pid, local, local_count, remote, remote_count, flags);

	copied += done > 0 ? (uint64_t)done : 0;
	return done;
}

ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
				 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	ssize_t done = __real_process_vm_writev(pid, local, local_count, remote, remote_count, flags);

	copied += done > 0 ? (uint64_t)done : 0;
	return done;
}

/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
