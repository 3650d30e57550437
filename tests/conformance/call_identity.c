/* SPDX-License-Identifier: MIT */
/* uname, sysinfo, times, getrusage, getrlimit, prlimit, getgroups, getresuid, capget and getrandom write to
 * fresh pages. */
#include "fresh.h"

#include <linux/capability.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>

static void body(char *memory)
{
	PROMISE(uname((struct utsname *)(memory + 3900)) == 0 && strcmp(memory + 3900, "Linux") == 0);
	PROMISE(sysinfo((struct sysinfo *)memory) == 0 && ((struct sysinfo *)memory)->totalram > 0);
	PROMISE(times((struct tms *)(memory + 500)) != (clock_t)-1);
	PROMISE(getrusage(RUSAGE_SELF, (struct rusage *)(memory + 5000)) == 0);
	PROMISE(((struct rusage *)(memory + 5000))->ru_maxrss > 0);
	PROMISE(getrandom(memory + 6000, 1000, 0) == 1000);
}

static void body_more(char *memory)
{
	struct rlimit *limit = (struct rlimit *)memory;
	PROMISE(getrlimit(RLIMIT_NOFILE, limit) == 0 && limit->rlim_cur > 0 && setrlimit(RLIMIT_NOFILE, limit) == 0);
	PROMISE(prlimit(0, RLIMIT_STACK, NULL, (void *)(memory + 4100)) == 0);
	uid_t *ids = (uid_t *)(memory + 5000);
	PROMISE(getresuid(ids, ids + 1, ids + 2) == 0 && ids[0] == getuid() && ids[1] == geteuid());
	PROMISE(getresgid(ids, ids + 1, ids + 2) == 0 && ids[0] == getgid());
	PROMISE(getgroups(100, (gid_t *)(memory + 6000)) >= 0);
	struct __user_cap_header_struct *header = (void *)(memory + 7000);
	*header = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_3, 0};
	PROMISE(syscall(SYS_capget, header, memory + 7200) == 0);
	PROMISE(gethostname(memory + 300, 100) == 0);
}

int main(void)
{
	with_fresh_memory(body);
	with_fresh_memory(body_more);
	return 0;
}
