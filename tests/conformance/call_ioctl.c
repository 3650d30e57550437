/* SPDX-License-Identifier: MIT */
/* ioctl reads from and writes to fresh pages, whatever the request. */
#include "fresh.h"

#include <net/if.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

static int ends[2], terminal;

static void body(char *memory)
{
	int *count = (int *)memory;
	struct winsize *window = (struct winsize *)(memory + 4200);
	PROMISE(ioctl(ends[0], FIONREAD, count) == 0 && *count == 3);
	*window = (struct winsize){.ws_row = 11, .ws_col = 22};
	PROMISE(ioctl(terminal, TIOCSWINSZ, window) == 0);
	memset(window, 0, sizeof *window);
	PROMISE(ioctl(terminal, TIOCGWINSZ, window) == 0 && window->ws_row == 11 && window->ws_col == 22);
	struct termios *settings = (struct termios *)(memory + 5000);
	PROMISE(tcgetattr(terminal, settings) == 0 && tcsetattr(terminal, TCSANOW, settings) == 0);
	struct ifconf *list = (struct ifconf *)(memory + 6000);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	list->ifc_len = 500, list->ifc_buf = memory + 6100;
	PROMISE(ioctl(fd, SIOCGIFCONF, list) == 0);
	close(fd);
}

int main(void)
{
	int slave;
	PROMISE(pipe(ends) == 0 && write(ends[1], "abc", 3) == 3);
	PROMISE(openpty(&terminal, &slave, NULL, NULL, NULL) == 0);
	with_fresh_memory(body);
	return 0;
}
