/* SPDX-License-Identifier: MIT */
/* accept, getsockname, getpeername, getsockopt, setsockopt and connect work on fresh pages. */
#include "fresh.h"

#include <netinet/in.h>
#include <sys/socket.h>

static void body(char *memory)
{
	struct sockaddr_in *address = (struct sockaddr_in *)memory;
	socklen_t *length = (socklen_t *)(memory + 4200);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	memset(address, 0, sizeof *address);
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	PROMISE(bind(listener, (void *)address, sizeof *address) == 0 && listen(listener, 1) == 0);
	*length = sizeof *address;
	PROMISE(getsockname(listener, (void *)address, length) == 0 && address->sin_port != 0);
	PROMISE(connect(client, (void *)address, sizeof *address) == 0);
	address = (struct sockaddr_in *)(memory + 5000);
	length = (socklen_t *)(memory + 6000);
	*length = sizeof *address;
	int server = accept(listener, (void *)address, length);
	PROMISE(server >= 0 && address->sin_family == AF_INET && *length == sizeof *address);
	PROMISE(getpeername(client, (void *)address, length) == 0);
	int *option = (int *)(memory + 7000);
	*option = 1;
	PROMISE(setsockopt(server, SOL_SOCKET, SO_KEEPALIVE, option, sizeof *option) == 0);
	*option = 0, *length = sizeof *option;
	PROMISE(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, option, length) == 0 && *option == 1);
	close(server), close(client), close(listener);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
