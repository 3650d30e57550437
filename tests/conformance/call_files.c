/* SPDX-License-Identifier: MIT */
/* open, rename, link, unlink, truncate, fcntl locks, extended attributes and sendfile's offset work with fresh
 * pages. */
#include "fresh.h"

#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static void body(char *memory)
{
	char *other = memory + 4000;
	snprintf(memory, 100, "/tmp/conformance.%d.a", (int)getpid());
	snprintf(other, 100, "/tmp/conformance.%d.b", (int)getpid());
	int fd = open(memory, O_RDWR | O_CREAT | O_EXCL, 0600);
	PROMISE(fd >= 0 && write(fd, "0123456789", 10) == 10);
	PROMISE(link(memory, other) == 0 && unlink(memory) == 0 && rename(other, memory) == 0);
	PROMISE(truncate(memory, 8) == 0 && chmod(memory, 0640) == 0);
	PROMISE(symlink(memory, other) == 0 && readlink(other, memory + 200, 100) > 0 && unlink(other) == 0);
	struct flock *lock = (struct flock *)(memory + 5000);
	*lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 4};
	PROMISE(fcntl(fd, F_SETLK, lock) == 0 && fcntl(fd, F_GETLK, lock) == 0 && lock->l_type == F_UNLCK);
	strcpy(memory + 300, "user.conformance");
	if (setxattr(memory, memory + 300, "v", 1, 0) == 0) {
		PROMISE(getxattr(memory, memory + 300, memory + 6000, 100) == 1 && memory[6000] == 'v');
		PROMISE(listxattr(memory, memory + 6200, 500) > 0);
	} else {
		PROMISE(errno == EOPNOTSUPP);
	}
	off_t *offset = (off_t *)(memory + 7000);
	*offset = 2;
	int ends[2];
	PROMISE(pipe(ends) == 0 && sendfile(ends[1], fd, offset, 3) == 3 && *offset == 5);
	PROMISE(read(ends[0], memory + 7100, 10) == 3 && memcmp(memory + 7100, "234", 3) == 0);
	*offset = 0;
	PROMISE(splice(fd, offset, ends[1], NULL, 4, 0) == 4 && *offset == 4);
	close(ends[0]), close(ends[1]), close(fd);
	PROMISE(unlink(memory) == 0);
}

int main(void)
{
	with_fresh_memory(body);
	return 0;
}
