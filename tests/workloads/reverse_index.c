/* SPDX-License-Identifier: MIT */
/* Reverse index: which documents link to which page. FILE holds pages of HTML, SIZE bytes; a document is 64 KiB of it.
 * Stresses: small allocations under one lock that all threads want, a list that every thread extends. */
#include "workload.h"

enum { BUCKETS = 4096, DOCUMENT = 65536, URL = 128 };

struct page {
	struct page *next;
	int *documents;
	int count, room;
	char *url;
};

static const unsigned char *html;
static struct page *pages[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(const char *url, int document)
{
	unsigned hash = 0;
	for (const char *at = url; *at; at++)
		hash = hash * 31 + (unsigned char)*at;
	pthread_mutex_lock(&lock);
	struct page **at = &pages[hash % BUCKETS];
	while (*at && strcmp((*at)->url, url) != 0)
		at = &(*at)->next;
	if (!*at) {
		*at = allocate(sizeof **at);
		(*at)->url = strdup(url);
	}
	struct page *page = *at;
	if (page->count == page->room) {
		page->room = page->room ? page->room * 2 : 4;
		page->documents = realloc(page->documents, (size_t)page->room * sizeof *page->documents);
		if (!page->documents)
			fail("realloc");
	}
	page->documents[page->count++] = document;
	pthread_mutex_unlock(&lock);
}

/* Finds each <a href="URL"> that begins in [at, end). */
static void parse(long at, long end, int document)
{
	static const char anchor[] = "<a href=\"";
	size_t seen = 0;
	for (; at < end || (seen && at < size); at++) {
		seen = html[at] == (unsigned char)anchor[seen] ? seen + 1 : html[at] == '<' && at < end;
		if (seen < sizeof anchor - 1)
			continue;
		char *url = allocate(URL);
		size_t length = 0;
		while (++at < size && html[at] != '"' && length < URL - 1)
			url[length++] = (char)html[at];
		add(url, document);
		free(url);
		seen = 0;
	}
}

static void *index_share(void *argument)
{
	long id = (long)argument, documents = (size + DOCUMENT - 1) / DOCUMENT;
	for (long document = share(documents, id); document < share(documents, id + 1); document++) {
		long end = (document + 1) * DOCUMENT;
		parse(document * DOCUMENT, end < size ? end : size, (int)document);
	}
	return NULL;
}

static int ascending(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

int main(int argc, char **argv)
{
	begin(argc, argv, 3);
	html = map_input(argv[3]);
	in_threads(index_share);
	uint64_t sum = 0;
	long distinct = 0, links = 0;
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (struct page *page = pages[bucket]; page; page = page->next) {
			uint64_t hash = 0;
			qsort(page->documents, (size_t)page->count, sizeof *page->documents, ascending);
			for (const char *at = page->url; *at; at++)
				hash = mix(hash, (unsigned char)*at);
			for (int i = 0; i < page->count; i++)
				hash = mix(hash, (uint64_t)page->documents[i]);
			sum += hash; /* of all pages, in whatever order they were found */
			distinct++;
			links += page->count;
		}
	printf("%ld pages, %ld links, %016lx\n", distinct, links, sum);
	return 0;
}
