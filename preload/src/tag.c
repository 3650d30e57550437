/* SPDX-License-Identifier: MIT */
/* Tags; tag.h says what is guaranteed. */
#define _GNU_SOURCE
#include "tag.h"

#include "process.h"
#include "vector.h"

#include <string.h>

static PTW_CHANGING struct ptv_vector vector; /* bytes 0: there is none */

__thread struct ptv_producer ptw_tag_producer __attribute__((tls_model("initial-exec")));
#define producer ptw_tag_producer

static const struct ptv_field fields[] = {{"text", PTV_STRING}, {"stack", PTV_WORDS}};
static struct ptv_kind tag = PTV_KIND("tag", fields);

enum { TEXT, STACK };

int ptw_tags_begin(void)
{
	return vector.bytes ? ptv_vector_replace(&vector) : ptv_vector_init(&vector, PTW_TAG_LISTS, PTV_LIST_SIZE);
}

uint64_t ptw_tags_own(void) { return (uint64_t)vector.live; }

void ptw_tags_resume(void)
{
	if (vector.bytes)
		ptv_vector_resume(&vector);
}

void ptw_tags_thread_end(void)
{
	if (producer.vector)
		ptv_producer_deinit(&producer);
}

struct ptv_producer *ptw_tag_ready(void)
{
	if (!ptw_tracing() || !vector.bytes)
		return NULL;
	if (!producer.vector)
		ptv_producer_init(&producer, &vector);
	return &producer;
}

static bool may_tag(const struct ptw_frame *caller)
{
	if (!ptw_tracing() || !vector.bytes)
		return false;
	if (ptw_self.state == PTW_THREAD_NEW) { /* one that glibc made on its own account */
		ptw_thread_attach(ptw_next_serial(), 0);
		ptw_log_start(caller, pthread_self(), 0, 0);
	}
	if (!producer.vector)
		ptv_producer_init(&producer, &vector);
	return ptw_self.state == PTW_THREAD_TRACED;
}

void ptweave_tag_record(const char *text, unsigned long length, unsigned count, const char *const *keys,
			const char *const *values)
{
	struct ptw_frame caller = PTW_CALLER;
	struct ptv_event event;
	uint64_t stack[PTW_MAX_FRAMES];
	if (!may_tag(&caller) || ptv_begin(&producer, &tag, &event) != 0)
		return;
	ptv_set_words(&event, STACK, stack, ptw_unwind(&caller, ptw_self.top, stack, PTW_MAX_FRAMES));
	ptv_set_string(&event, TEXT, text, length);
	for (unsigned i = 0; i < count; i++) {
		struct ptv_key key = PTV_KEY(keys[i]);
		ptv_add_string(&event, &key, values[i], strlen(values[i]));
	}
	ptv_commit(&event);
}
