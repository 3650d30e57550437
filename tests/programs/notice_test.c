/* SPDX-License-Identifier: MIT */
/* Unit tests of notices: told once, kept for the supervisor, never more than there is room for. */
#define _GNU_SOURCE
#include "notice.h"

#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 8, PLACES = 40 };

static struct ptw_lists *lists;
static char places[1000];

static void nothing(void) { CHECK(lists->notices == 0); }

static void each_place_is_told_once(void)
{
	nothing();
	ptw_notices_begin(lists);
	errno = 77;
	CHECK(ptw_notice(PTW_NOTICE_FUTEX, places, "one") == 0);
	CHECK(ptw_notice(PTW_NOTICE_FUTEX, places, "one") == 1);
	CHECK(ptw_notice(PTW_NOTICE_CALL, places, "another kind") == 0);
	CHECK(ptw_notice_about(PTW_NOTICE_FUTEX, places + 1, &lists, "two") == 0);
	CHECK(errno == 77 && lists->notices == 3 && lists->notices_lost == 0);
	CHECK(lists->notice[0].state == 2 && lists->notice[0].kind == PTW_NOTICE_FUTEX);
	CHECK(strcmp(lists->notice[2].text, "two") == 0);
	CHECK(lists->notice[2].object.address == (uint64_t)&lists && lists->notice[0].object.address == 0);
}

static void a_place_has_its_file_and_the_address_there(void)
{
	ptw_notices_begin(lists);
	ptw_notice_about(PTW_NOTICE_CALL, places + 5, places + 9, "here");
	const struct ptw_notice *one = &lists->notice[0];
	CHECK(one->code.known && one->object.offset - one->code.offset == 4);
	CHECK(strstr(one->code.path, "notice_test"));
	ptw_notice(PTW_NOTICE_CALL, lists, "memory without a file");
	CHECK(!lists->notice[1].code.known && lists->notice[1].code.address == (uint64_t)lists);
}

static void what_comes_before_the_lists_waits(void)
{
	CHECK(ptw_notice(PTW_NOTICE_FALLBACK, NULL, "early") == 0);
	CHECK(ptw_notice(PTW_NOTICE_FALLBACK, NULL, "early") == 1);
	nothing();
	ptw_notices_begin(lists);
	CHECK(lists->notices == 1 && strcmp(lists->notice[0].text, "early") == 0);
	CHECK(ptw_notice(PTW_NOTICE_FALLBACK, NULL, "early") == 1);
	ptw_notices_begin(lists);
	CHECK(lists->notices == 1);
	CHECK(ptw_notice(PTW_NOTICE_FALLBACK, NULL, "late") == 0); /* without a place the words tell them apart */
	CHECK(lists->notices == 2);
}

static void what_has_no_room_is_counted(void)
{
	char text[2 * PTW_NOTICE_TEXT];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	ptw_notices_begin(lists);
	for (int i = 0; i < PTW_NOTICES; i++)
		CHECK(ptw_notice(PTW_NOTICE_ATOMIC, places + i, text) == 0);
	CHECK(strlen(lists->notice[0].text) == PTW_NOTICE_TEXT - 1);
	CHECK(ptw_notice(PTW_NOTICE_ATOMIC, places + PTW_NOTICES, text) == -ENOSPC);
	CHECK(ptw_notice(PTW_NOTICE_ATOMIC, places, text) == 1);
	CHECK(lists->notices == PTW_NOTICES && lists->notices_lost == 1);
}

static void *tell_all(void *unused)
{
	for (int i = 0; i < PLACES; i++)
		ptw_notice(PTW_NOTICE_ATOMIC, places + i, "from many");
	return unused;
}

static void threads_tell_every_place(void)
{
	pthread_t threads[THREADS];
	int seen[PLACES] = {0};
	ptw_notices_begin(lists);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, tell_all, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(lists->notices_lost == 0);
	for (uint32_t i = 0; i < lists->notices; i++) { /* two that come at the same moment may both be there */
		CHECK(lists->notice[i].state == 2);
		seen[lists->notice[i].code.address - (uint64_t)places]++;
	}
	for (int i = 0; i < PLACES; i++)
		CHECK(seen[i] >= 1);
}

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(each_place_is_told_once),
	CASE(a_place_has_its_file_and_the_address_there),
	CASE(what_comes_before_the_lists_waits),
	CASE(what_has_no_room_is_counted),
	CASE(threads_tell_every_place),
};

int main(int count, char **words)
{
	int fd = ptw_lists_init(NULL, &lists);
	CHECK(fd >= 0);
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (strcmp(words[1], cases[i].name) == 0)
			cases[i].run();
	}
	ptw_lists_deinit(lists);
	return 0;
}
