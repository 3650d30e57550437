/* SPDX-License-Identifier: MIT */
/* poll, ppoll, select, pselect and epoll take and fill lists in fresh pages. */
#include "fresh.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

static int ends[2], epoll;

static void body(char *memory)
{
	struct pollfd *list = (struct pollfd *)memory;
	struct timespec *none = (struct timespec *)(memory + 4200);
	*none = (struct timespec){0, 0};
	list[0] = (struct pollfd){.fd = ends[0], .events = POLLIN};
	PROMISE(poll(list, 1, 0) == 1 && list[0].revents == POLLIN);
	list[0].revents = 0;
	PROMISE(ppoll(list, 1, none, NULL) == 1 && list[0].revents == POLLIN);
	fd_set *set = (fd_set *)(memory + 5000);
	struct timeval *zero = (struct timeval *)(memory + 6000);
	*zero = (struct timeval){0, 0};
	FD_ZERO(set);
	FD_SET(ends[0], set);
	PROMISE(select(ends[0] + 1, set, NULL, NULL, zero) == 1 && FD_ISSET(ends[0], set));
	sigset_t *mask = (sigset_t *)(memory + 6500);
	sigemptyset(mask);
	PROMISE(pselect(ends[0] + 1, set, NULL, NULL, none, mask) == 1);
	struct epoll_event *events = (struct epoll_event *)(memory + 7000);
	PROMISE(epoll_wait(epoll, events, 4, 0) == 1 && events[0].data.u64 == 77);
	PROMISE(epoll_pwait(epoll, events + 4, 4, 0, mask) == 1);
	events[0] = (struct epoll_event){.events = EPOLLIN, .data.u64 = 77};
	PROMISE(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], events) == 0);
}

int main(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
	PROMISE(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	epoll = epoll_create1(0);
	PROMISE(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
	with_fresh_memory(body);
	return 0;
}
