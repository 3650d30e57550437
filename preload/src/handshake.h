/* SPDX-License-Identifier: MIT */
/*
 * The handshake with the supervisor: one message each way, or one only, for threads that need not wait. Mirrors
 * data/ptweave/data/handshake.py, where the fields are explained; a test keeps the two equal.
 *
 * Not thread-safe (the process's lock is around it) and not for signal handlers. No allocation; errno is left alone.
 */
#ifndef PTW_HANDSHAKE_H
#define PTW_HANDSHAKE_H

#include "sys.h"
#include "watch_format.h"

#include <sys/un.h>

#define PTW_HANDSHAKE_MAGIC 0x31575450u /* "PTW1" */
#define PTW_SOCKET_VARIABLE "PTWEAVE_SOCKET"
#ifndef PTW_HANDSHAKE_TIMEOUT_S /* tests are less patient */
#define PTW_HANDSHAKE_TIMEOUT_S 30
#endif

enum {
	PTW_HANDSHAKE_VERSION = 2,
	PTW_DESCRIPTOR_BASE = 900, /* where our descriptors go, if the limit allows */
};

enum ptw_hello_kind {
	PTW_HELLO_PROCESS = 1,
	PTW_HELLO_THREAD = 2,
	PTW_HELLO_FORK = 3,
	PTW_HELLO_PSEUDO_THREAD = 4,
};

enum ptw_welcome_status {
	PTW_WELCOME_GO = 0,
	PTW_WELCOME_REFUSED = 1,
};

enum { PTW_WELCOME_NO_WAIT = 1 }; /* flag: later hellos without descriptors are not answered */

struct ptw_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t kind;
	uint32_t pid;
	uint32_t tid;
	uint64_t tsc;
	uint32_t list;
	uint32_t flags;
	uint64_t start_routine;
	uint64_t marker;
};

struct ptw_welcome {
	uint32_t magic;
	uint16_t version;
	uint16_t status;
	int32_t thread;
	uint32_t flags;
};

_Static_assert(sizeof(struct ptw_hello) == 48, "hello layout");
_Static_assert(sizeof(struct ptw_welcome) == 16, "welcome layout");

enum ptw_outcome {
	PTW_GO,      /* welcome */
	PTW_REFUSED, /* the supervisor does not want it */
	PTW_GONE,    /* there is no supervisor (any more) */
	PTW_TIMEOUT, /* it did not answer */
};

/* The supervisor's end: descriptors of ours, with what tells that they are still ours. */
struct ptw_peer {
	struct sockaddr_un address;
	int socket;
	int pipe[2];
	uint64_t inode[3]; /* of socket, pipe[0], pipe[1] */
	uint32_t piped;    /* the supervisor has the pipe, and welcomed a thread through it */
	uint32_t no_wait;  /* it does not answer those who come later */
	uint32_t awaited;  /* it answers the hello under way */
	uint64_t deadline; /* of the handshake under way */
	int watches[PTW_WATCHES]; /* watchpoints that go along with memfd and vector */
	uint32_t watch_count;
};

/* Connect and make the pipe. 0, or negative errno. */
PTW_HIDDEN int ptw_peer_init(struct ptw_peer *peer);
PTW_HIDDEN void ptw_peer_deinit(struct ptw_peer *peer);

/* False when the program closed or replaced one of our descriptors. */
PTW_HIDDEN int ptw_peer_intact(const struct ptw_peer *peer);

/* Send `hello`, with the pipe if the supervisor has it not yet, and with `memfd`, if that is not negative; then also with
 * `vector`, the same, and with the watchpoints. PTW_GO: an answer will come. */
PTW_HIDDEN enum ptw_outcome ptw_hello_send(struct ptw_peer *peer, struct ptw_hello *hello, int memfd, int vector);

/* Wait for the answer, if there will be one. */
PTW_HIDDEN enum ptw_outcome ptw_welcome_await(struct ptw_peer *peer);

/* One line on the standard error stream. */
PTW_HIDDEN void ptw_say(const char *line);

#endif
