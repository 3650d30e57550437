# SPDX-License-Identifier: MIT
"""The x86-64 system calls and the error numbers, by name: one table for the recorder and for the decoder.

Source: Linux 6.18, `arch/x86/entry/syscalls/syscall_64.tbl` (numbers, names), the calls' definitions (arguments), and
`include/uapi/asm-generic/errno*.h` with `include/linux/errno.h` (errors; those above 511 never leave the kernel, but
a tracer sees them when a call is about to be restarted). Numbers keep their meaning for ever; new ones are appended.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_PATHS = 2
"""No call has more path arguments than this."""

PATH_MAX = 4096
"""The longest path the kernel takes, its NUL included."""

MAX_ERRNO = 4095
"""Results from -MAX_ERRNO to -1 are errors."""


@dataclass(frozen=True)
class Syscall:
    """A system call: its number, name, how many arguments it takes, and which of them are paths (0 is the first)."""

    number: int
    name: str
    nargs: int
    paths: tuple[int, ...] = ()


# number, name, arguments, and the positions of the path arguments
_TABLE = """
    0 read 3, 1 write 3, 2 open 3 0, 3 close 1, 4 stat 2 0, 5 fstat 2, 6 lstat 2 0, 7 poll 3, 8 lseek 3, 9 mmap 6,
    10 mprotect 3, 11 munmap 2, 12 brk 1, 13 rt_sigaction 4, 14 rt_sigprocmask 4, 15 rt_sigreturn 0, 16 ioctl 3,
    17 pread64 4, 18 pwrite64 4, 19 readv 3, 20 writev 3, 21 access 2 0, 22 pipe 1, 23 select 5, 24 sched_yield 0,
    25 mremap 5, 26 msync 3, 27 mincore 3, 28 madvise 3, 29 shmget 3, 30 shmat 3, 31 shmctl 3, 32 dup 1, 33 dup2 2,
    34 pause 0, 35 nanosleep 2, 36 getitimer 2, 37 alarm 1, 38 setitimer 3, 39 getpid 0, 40 sendfile 4, 41 socket 3,
    42 connect 3, 43 accept 3, 44 sendto 6, 45 recvfrom 6, 46 sendmsg 3, 47 recvmsg 3, 48 shutdown 2, 49 bind 3,
    50 listen 2, 51 getsockname 3, 52 getpeername 3, 53 socketpair 4, 54 setsockopt 5, 55 getsockopt 5, 56 clone 5,
    57 fork 0, 58 vfork 0, 59 execve 3 0, 60 exit 1, 61 wait4 4, 62 kill 2, 63 uname 1, 64 semget 3, 65 semop 3,
    66 semctl 4, 67 shmdt 1, 68 msgget 2, 69 msgsnd 4, 70 msgrcv 5, 71 msgctl 3, 72 fcntl 3, 73 flock 2, 74 fsync 1,
    75 fdatasync 1, 76 truncate 2 0, 77 ftruncate 2, 78 getdents 3, 79 getcwd 2, 80 chdir 1 0, 81 fchdir 1,
    82 rename 2 01, 83 mkdir 2 0, 84 rmdir 1 0, 85 creat 2 0, 86 link 2 01, 87 unlink 1 0, 88 symlink 2 01,
    89 readlink 3 0, 90 chmod 2 0, 91 fchmod 2, 92 chown 3 0, 93 fchown 3, 94 lchown 3 0, 95 umask 1,
    96 gettimeofday 2, 97 getrlimit 2, 98 getrusage 2, 99 sysinfo 1, 100 times 1, 101 ptrace 4, 102 getuid 0,
    103 syslog 3, 104 getgid 0, 105 setuid 1, 106 setgid 1, 107 geteuid 0, 108 getegid 0, 109 setpgid 2,
    110 getppid 0, 111 getpgrp 0, 112 setsid 0, 113 setreuid 2, 114 setregid 2, 115 getgroups 2, 116 setgroups 2,
    117 setresuid 3, 118 getresuid 3, 119 setresgid 3, 120 getresgid 3, 121 getpgid 1, 122 setfsuid 1,
    123 setfsgid 1, 124 getsid 1, 125 capget 2, 126 capset 2, 127 rt_sigpending 2, 128 rt_sigtimedwait 4,
    129 rt_sigqueueinfo 3, 130 rt_sigsuspend 2, 131 sigaltstack 2, 132 utime 2 0, 133 mknod 3 0, 134 uselib 1 0,
    135 personality 1, 136 ustat 2, 137 statfs 2 0, 138 fstatfs 2, 139 sysfs 3, 140 getpriority 2, 141 setpriority 3,
    142 sched_setparam 2, 143 sched_getparam 2, 144 sched_setscheduler 3, 145 sched_getscheduler 1,
    146 sched_get_priority_max 1, 147 sched_get_priority_min 1, 148 sched_rr_get_interval 2, 149 mlock 2,
    150 munlock 2, 151 mlockall 1, 152 munlockall 0, 153 vhangup 0, 154 modify_ldt 3, 155 pivot_root 2 01,
    156 _sysctl 1, 157 prctl 5, 158 arch_prctl 2, 159 adjtimex 1, 160 setrlimit 2, 161 chroot 1 0, 162 sync 0,
    163 acct 1 0, 164 settimeofday 2, 165 mount 5 01, 166 umount2 2 0, 167 swapon 2 0, 168 swapoff 1 0, 169 reboot 4,
    170 sethostname 2, 171 setdomainname 2, 172 iopl 1, 173 ioperm 3, 174 create_module 2, 175 init_module 3,
    176 delete_module 2, 177 get_kernel_syms 1, 178 query_module 5, 179 quotactl 4 1, 180 nfsservctl 3,
    181 getpmsg 5, 182 putpmsg 5, 183 afs_syscall 5, 184 tuxcall 3, 185 security 3, 186 gettid 0, 187 readahead 3,
    188 setxattr 5 0, 189 lsetxattr 5 0, 190 fsetxattr 5, 191 getxattr 4 0, 192 lgetxattr 4 0, 193 fgetxattr 4,
    194 listxattr 3 0, 195 llistxattr 3 0, 196 flistxattr 3, 197 removexattr 2 0, 198 lremovexattr 2 0,
    199 fremovexattr 2, 200 tkill 2, 201 time 1, 202 futex 6, 203 sched_setaffinity 3, 204 sched_getaffinity 3,
    205 set_thread_area 1, 206 io_setup 2, 207 io_destroy 1, 208 io_getevents 5, 209 io_submit 3, 210 io_cancel 3,
    211 get_thread_area 1, 212 lookup_dcookie 3, 213 epoll_create 1, 214 epoll_ctl_old 4, 215 epoll_wait_old 4,
    216 remap_file_pages 5, 217 getdents64 3, 218 set_tid_address 1, 219 restart_syscall 0, 220 semtimedop 4,
    221 fadvise64 4, 222 timer_create 3, 223 timer_settime 4, 224 timer_gettime 2, 225 timer_getoverrun 1,
    226 timer_delete 1, 227 clock_settime 2, 228 clock_gettime 2, 229 clock_getres 2, 230 clock_nanosleep 4,
    231 exit_group 1, 232 epoll_wait 4, 233 epoll_ctl 4, 234 tgkill 3, 235 utimes 2 0, 236 vserver 5, 237 mbind 6,
    238 set_mempolicy 3, 239 get_mempolicy 5, 240 mq_open 4, 241 mq_unlink 1, 242 mq_timedsend 5,
    243 mq_timedreceive 5, 244 mq_notify 2, 245 mq_getsetattr 3, 246 kexec_load 4, 247 waitid 5, 248 add_key 5,
    249 request_key 4, 250 keyctl 5, 251 ioprio_set 3, 252 ioprio_get 2, 253 inotify_init 0,
    254 inotify_add_watch 3 1, 255 inotify_rm_watch 2, 256 migrate_pages 4, 257 openat 4 1, 258 mkdirat 3 1,
    259 mknodat 4 1, 260 fchownat 5 1, 261 futimesat 3 1, 262 newfstatat 4 1, 263 unlinkat 3 1, 264 renameat 4 13,
    265 linkat 5 13, 266 symlinkat 3 02, 267 readlinkat 4 1, 268 fchmodat 3 1, 269 faccessat 3 1, 270 pselect6 6,
    271 ppoll 5, 272 unshare 1, 273 set_robust_list 2, 274 get_robust_list 3, 275 splice 6, 276 tee 4,
    277 sync_file_range 4, 278 vmsplice 4, 279 move_pages 6, 280 utimensat 4 1, 281 epoll_pwait 6, 282 signalfd 3,
    283 timerfd_create 2, 284 eventfd 1, 285 fallocate 4, 286 timerfd_settime 4, 287 timerfd_gettime 2,
    288 accept4 4, 289 signalfd4 4, 290 eventfd2 2, 291 epoll_create1 1, 292 dup3 3, 293 pipe2 2,
    294 inotify_init1 1, 295 preadv 5, 296 pwritev 5, 297 rt_tgsigqueueinfo 4, 298 perf_event_open 5, 299 recvmmsg 5,
    300 fanotify_init 2, 301 fanotify_mark 5 4, 302 prlimit64 4, 303 name_to_handle_at 5 1, 304 open_by_handle_at 3,
    305 clock_adjtime 2, 306 syncfs 1, 307 sendmmsg 4, 308 setns 2, 309 getcpu 3, 310 process_vm_readv 6,
    311 process_vm_writev 6, 312 kcmp 5, 313 finit_module 3, 314 sched_setattr 3, 315 sched_getattr 4,
    316 renameat2 5 13, 317 seccomp 3, 318 getrandom 3, 319 memfd_create 2, 320 kexec_file_load 5, 321 bpf 3,
    322 execveat 5 1, 323 userfaultfd 1, 324 membarrier 3, 325 mlock2 3, 326 copy_file_range 6, 327 preadv2 6,
    328 pwritev2 6, 329 pkey_mprotect 4, 330 pkey_alloc 2, 331 pkey_free 1, 332 statx 5 1, 333 io_pgetevents 6,
    334 rseq 4, 335 uretprobe 0, 336 uprobe 0, 424 pidfd_send_signal 4, 425 io_uring_setup 2, 426 io_uring_enter 6,
    427 io_uring_register 4, 428 open_tree 3 1, 429 move_mount 5 13, 430 fsopen 2, 431 fsconfig 5, 432 fsmount 3,
    433 fspick 3 1, 434 pidfd_open 2, 435 clone3 2, 436 close_range 3, 437 openat2 4 1, 438 pidfd_getfd 3,
    439 faccessat2 4 1, 440 process_madvise 5, 441 epoll_pwait2 6, 442 mount_setattr 5 1, 443 quotactl_fd 4,
    444 landlock_create_ruleset 3, 445 landlock_add_rule 4, 446 landlock_restrict_self 2, 447 memfd_secret 1,
    448 process_mrelease 2, 449 futex_waitv 5, 450 set_mempolicy_home_node 4, 451 cachestat 4, 452 fchmodat2 4 1,
    453 map_shadow_stack 3, 454 futex_wake 4, 455 futex_wait 6, 456 futex_requeue 4, 457 statmount 4,
    458 listmount 4, 459 lsm_get_self_attr 4, 460 lsm_set_self_attr 4, 461 lsm_list_modules 3, 462 mseal 3,
    463 setxattrat 6 1, 464 getxattrat 6 1, 465 listxattrat 5 1, 466 removexattrat 4 1, 467 open_tree_attr 5 1,
    468 file_getattr 5 1, 469 file_setattr 5 1
"""

# number, name
_ERRNOS = """
    1 EPERM, 2 ENOENT, 3 ESRCH, 4 EINTR, 5 EIO, 6 ENXIO, 7 E2BIG, 8 ENOEXEC, 9 EBADF, 10 ECHILD, 11 EAGAIN,
    12 ENOMEM, 13 EACCES, 14 EFAULT, 15 ENOTBLK, 16 EBUSY, 17 EEXIST, 18 EXDEV, 19 ENODEV, 20 ENOTDIR, 21 EISDIR,
    22 EINVAL, 23 ENFILE, 24 EMFILE, 25 ENOTTY, 26 ETXTBSY, 27 EFBIG, 28 ENOSPC, 29 ESPIPE, 30 EROFS, 31 EMLINK,
    32 EPIPE, 33 EDOM, 34 ERANGE, 35 EDEADLK, 36 ENAMETOOLONG, 37 ENOLCK, 38 ENOSYS, 39 ENOTEMPTY, 40 ELOOP,
    42 ENOMSG, 43 EIDRM, 44 ECHRNG, 45 EL2NSYNC, 46 EL3HLT, 47 EL3RST, 48 ELNRNG, 49 EUNATCH, 50 ENOCSI, 51 EL2HLT,
    52 EBADE, 53 EBADR, 54 EXFULL, 55 ENOANO, 56 EBADRQC, 57 EBADSLT, 59 EBFONT, 60 ENOSTR, 61 ENODATA, 62 ETIME,
    63 ENOSR, 64 ENONET, 65 ENOPKG, 66 EREMOTE, 67 ENOLINK, 68 EADV, 69 ESRMNT, 70 ECOMM, 71 EPROTO, 72 EMULTIHOP,
    73 EDOTDOT, 74 EBADMSG, 75 EOVERFLOW, 76 ENOTUNIQ, 77 EBADFD, 78 EREMCHG, 79 ELIBACC, 80 ELIBBAD, 81 ELIBSCN,
    82 ELIBMAX, 83 ELIBEXEC, 84 EILSEQ, 85 ERESTART, 86 ESTRPIPE, 87 EUSERS, 88 ENOTSOCK, 89 EDESTADDRREQ,
    90 EMSGSIZE, 91 EPROTOTYPE, 92 ENOPROTOOPT, 93 EPROTONOSUPPORT, 94 ESOCKTNOSUPPORT, 95 EOPNOTSUPP,
    96 EPFNOSUPPORT, 97 EAFNOSUPPORT, 98 EADDRINUSE, 99 EADDRNOTAVAIL, 100 ENETDOWN, 101 ENETUNREACH, 102 ENETRESET,
    103 ECONNABORTED, 104 ECONNRESET, 105 ENOBUFS, 106 EISCONN, 107 ENOTCONN, 108 ESHUTDOWN, 109 ETOOMANYREFS,
    110 ETIMEDOUT, 111 ECONNREFUSED, 112 EHOSTDOWN, 113 EHOSTUNREACH, 114 EALREADY, 115 EINPROGRESS, 116 ESTALE,
    117 EUCLEAN, 118 ENOTNAM, 119 ENAVAIL, 120 EISNAM, 121 EREMOTEIO, 122 EDQUOT, 123 ENOMEDIUM, 124 EMEDIUMTYPE,
    125 ECANCELED, 126 ENOKEY, 127 EKEYEXPIRED, 128 EKEYREVOKED, 129 EKEYREJECTED, 130 EOWNERDEAD,
    131 ENOTRECOVERABLE, 132 ERFKILL, 133 EHWPOISON, 512 ERESTARTSYS, 513 ERESTARTNOINTR, 514 ERESTARTNOHAND,
    515 ENOIOCTLCMD, 516 ERESTART_RESTARTBLOCK, 517 EPROBE_DEFER, 518 EOPENSTALE, 519 ENOPARAM, 521 EBADHANDLE,
    522 ENOTSYNC, 523 EBADCOOKIE, 524 ENOTSUPP, 525 ETOOSMALL, 526 ESERVERFAULT, 527 EBADTYPE, 528 EJUKEBOX,
    529 EIOCBQUEUED, 530 ERECALLCONFLICT
"""


def _parse() -> dict[int, Syscall]:
    calls = {}
    for entry in _TABLE.replace("\n", " ").split(","):
        number, name, nargs, *paths = entry.split()
        calls[int(number)] = Syscall(int(number), name, int(nargs), tuple(int(one) for one in "".join(paths)))
    return calls


SYSCALLS: dict[int, Syscall] = _parse()
"""Every x86-64 system call by number."""

NUMBERS: dict[str, int] = {call.name: call.number for call in SYSCALLS.values()}
"""Numbers by name."""

ERRNOS: dict[int, str] = {int(entry.split()[0]): entry.split()[1]
                          for entry in _ERRNOS.replace("\n", " ").split(",")}
"""Names of error numbers."""


def name_of(number: int) -> str:
    """Name of a system call; `syscall_<number>` for one that is not in the table."""
    call = SYSCALLS.get(number)
    return call.name if call else f"syscall_{number}"


def nargs_of(number: int) -> int:
    """How many arguments it takes; 6 for one that is not in the table (nothing is left out)."""
    call = SYSCALLS.get(number)
    return call.nargs if call else 6


def errno_name(result: int) -> str | None:
    """Name of the error in a raw result (`-2` → `ENOENT`); None when the result is no error."""
    if not -MAX_ERRNO <= result <= -1:
        return None
    return ERRNOS.get(-result, f"errno_{-result}")
