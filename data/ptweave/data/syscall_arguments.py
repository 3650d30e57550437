# SPDX-License-Identifier: MIT
"""What the arguments of every x86-64 system call are: their names, their kinds, and which memory they point to.

Source: the calls' manual pages (man7.org, section 2) and definitions in Linux 6.18 (`SYSCALL_DEFINEx`), held to the
formats that the running kernel tells (tracefs) by a test.

A call is written as `name argument:kind …`. Kinds of values:

    d, u, x, o      a number: signed, unsigned, hexadecimal, octal (32 bits for d, else as wide as the register)
    l               a signed number of 64 bits
    fd, dirfd       a descriptor; dirfd may be AT_FDCWD
    pid, sig, uid   a process or thread, a signal, a user or group (-1: unchanged)
    @SET            names of flags or of one value: `ptweave.data.syscall_flags`
    *               an address that is not followed

Kinds of memory; `<` is read by the kernel and captured at enter, `>` written by it and captured at exit, `<>` both:

    path, str       a string
    words           an array of strings that NULL ends (argv, envp)
    <TYPE           one structure; its size is in STRUCTURES
    <TYPE[n]        as many as the argument n (0 is the first) says; [r]: as the result says; [*n]: as the 32-bit number
                    says that argument n points to; [bn]: words of 64 bits that have as many bits as argument n says;
                    [=n]: n bytes
    <bytes[…]       the same of bytes that are the program's data: as many are kept as the user wants
    <iov[n]         a vector of n buffers, and what they hold; <msg a message header and what belongs to it;
                    <mmsghdr[n] an array of such
    !               behind `>`: written though the call fails
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from ptweave.data import syscall_table

STRUCTURES: dict[str, int] = {
    "i32": 4, "u32": 4, "u64": 8, "pair": 8, "stat": 144, "statx": 256, "statfs": 120, "pollfd": 8, "fd_set": 1,
    "timeval": 16, "timespec": 16, "itimerval": 32, "itimerspec": 32, "timezone": 8, "timeval2": 32,
    "timespec2": 32, "utimbuf": 16, "sigaction": 32, "sigset": 8, "siginfo": 128, "stack": 24, "sigset_size": 16,
    "rusage": 144, "rlimit": 16, "utsname": 390, "sysinfo": 112, "tms": 32, "sockaddr": 1, "sembuf": 6,
    "shmid_ds": 112, "msqid_ds": 120, "epoll_event": 12, "iovec": 16, "mmsghdr": 64, "timex": 208, "sched_param": 4,
    "cap_header": 8, "cap_data": 24, "ustat": 32, "sigevent": 64, "mq_attr": 64, "iocb": 64, "io_event": 32,
    "robust_list_head": 24, "futex_waitv": 24, "file_handle": 8, "user_desc": 16, "io_uring_params": 120,
    "open_how": 24, "linux_dirent": 1, "dirent64": 1, "struct": 1, "cachestat": 40, "cachestat_range": 16,
    "landlock_ruleset": 1, "mnt_id_req": 24, "rseq": 1, "perf_event_attr": 112,
}
"""Sizes in bytes. Where it is 1, another argument has the size."""

_CALLS = """
read fd:fd buf:>bytes[r] count:u
write fd:fd buf:<bytes[2] count:u
open pathname:path flags:@open mode:o
close fd:fd
stat pathname:path statbuf:>stat
fstat fd:fd statbuf:>stat
lstat pathname:path statbuf:>stat
poll fds:<>pollfd[1] nfds:u timeout:d
lseek fd:fd offset:l whence:@whence
mmap addr:x length:u prot:@prot flags:@mmap fd:fd offset:x
mprotect addr:x length:u prot:@prot
munmap addr:x length:u
brk addr:x
rt_sigaction sig:sig act:<sigaction oact:>sigaction sigsetsize:u
rt_sigprocmask how:@sigmask set:<sigset oldset:>sigset sigsetsize:u
rt_sigreturn
ioctl fd:fd request:@ioctl arg:x
pread64 fd:fd buf:>bytes[r] count:u offset:l
pwrite64 fd:fd buf:<bytes[2] count:u offset:l
readv fd:fd iov:>iov[2] iovcnt:u
writev fd:fd iov:<iov[2] iovcnt:u
access pathname:path mode:@access
pipe fds:>pair
select nfds:d readfds:<>fd_set[b0] writefds:<>fd_set[b0] exceptfds:<>fd_set[b0] timeout:<>!timeval
sched_yield
mremap addr:x old_size:u new_size:u flags:@mremap new_addr:x
msync addr:x length:u flags:@msync
mincore addr:x length:u vec:*
madvise addr:x length:u advice:@madvise
shmget key:x size:u flags:@shmget
shmat shmid:d addr:x flags:@shmat
shmctl shmid:d cmd:@ipc_cmd buf:>shmid_ds
dup fd:fd
dup2 oldfd:fd newfd:fd
pause
nanosleep req:<timespec rem:>!timespec
getitimer which:@itimer value:>itimerval
alarm seconds:u
setitimer which:@itimer new:<itimerval old:>itimerval
getpid
sendfile out_fd:fd in_fd:fd offset:<>u64 count:u
socket domain:@family type:@socket_type protocol:d
connect fd:fd addr:<sockaddr[2] addrlen:u
accept fd:fd addr:>sockaddr[*2] addrlen:<>u32
sendto fd:fd buf:<bytes[2] len:u flags:@msg dest:<sockaddr[5] addrlen:u
recvfrom fd:fd buf:>bytes[r] len:u flags:@msg src:>sockaddr[*5] addrlen:<>u32
sendmsg fd:fd msg:<msg flags:@msg
recvmsg fd:fd msg:>msg flags:@msg
shutdown fd:fd how:@shutdown
bind fd:fd addr:<sockaddr[2] addrlen:u
listen fd:fd backlog:d
getsockname fd:fd addr:>sockaddr[*2] addrlen:<>u32
getpeername fd:fd addr:>sockaddr[*2] addrlen:<>u32
socketpair domain:@family type:@socket_type protocol:d fds:>pair
setsockopt fd:fd level:@sol optname:d optval:<struct[4] optlen:u
getsockopt fd:fd level:@sol optname:d optval:>struct[*4] optlen:<>u32
clone flags:@clone stack:x parent_tid:>i32 child_tid:* tls:x
fork
vfork
execve pathname:path argv:words envp:words
exit status:d
wait4 pid:pid status:>i32 options:@wait rusage:>rusage
kill pid:pid sig:sig
uname buf:>utsname
semget key:x nsems:d flags:@shmget
semop semid:d sops:<sembuf[2] nsops:u
semctl semid:d semnum:d cmd:@ipc_cmd arg:x
shmdt addr:x
msgget key:x flags:@shmget
msgsnd msqid:d msgp:<bytes[2] size:u flags:x
msgrcv msqid:d msgp:>bytes[r] size:u type:l flags:x
msgctl msqid:d cmd:@ipc_cmd buf:>msqid_ds
fcntl fd:fd cmd:@fcntl arg:x
flock fd:fd operation:@flock
fsync fd:fd
fdatasync fd:fd
truncate pathname:path length:l
ftruncate fd:fd length:l
getdents fd:fd dirp:>linux_dirent[r] count:u
getcwd buf:>struct[r] size:u
chdir pathname:path
fchdir fd:fd
rename oldpath:path newpath:path
mkdir pathname:path mode:o
rmdir pathname:path
creat pathname:path mode:o
link oldpath:path newpath:path
unlink pathname:path
symlink target:path linkpath:path
readlink pathname:path buf:>struct[r] size:u
chmod pathname:path mode:o
fchmod fd:fd mode:o
chown pathname:path owner:uid group:uid
fchown fd:fd owner:uid group:uid
lchown pathname:path owner:uid group:uid
umask mask:o
gettimeofday tv:>timeval tz:>timezone
getrlimit resource:@rlimit rlim:>rlimit
getrusage who:@rusage_who usage:>rusage
sysinfo info:>sysinfo
times buf:>tms
ptrace request:@ptrace pid:pid addr:x data:x
getuid
syslog type:d buf:>struct[r] len:d
getgid
setuid uid:uid
setgid gid:uid
geteuid
getegid
setpgid pid:pid pgid:pid
getppid
getpgrp
setsid
setreuid ruid:uid euid:uid
setregid rgid:uid egid:uid
getgroups size:d list:>u32[r]
setgroups size:d list:<u32[0]
setresuid ruid:uid euid:uid suid:uid
getresuid ruid:>u32 euid:>u32 suid:>u32
setresgid rgid:uid egid:uid sgid:uid
getresgid rgid:>u32 egid:>u32 sgid:>u32
getpgid pid:pid
setfsuid uid:uid
setfsgid gid:uid
getsid pid:pid
capget header:<cap_header data:>cap_data
capset header:<cap_header data:<cap_data
rt_sigpending set:>sigset sigsetsize:u
rt_sigtimedwait set:<sigset info:>siginfo timeout:<timespec sigsetsize:u
rt_sigqueueinfo tgid:pid sig:sig info:<siginfo
rt_sigsuspend mask:<sigset sigsetsize:u
sigaltstack ss:<stack old_ss:>stack
utime pathname:path times:<utimbuf
mknod pathname:path mode:o dev:x
uselib pathname:path
personality persona:x
ustat dev:x buf:>ustat
statfs pathname:path buf:>statfs
fstatfs fd:fd buf:>statfs
sysfs option:d arg1:x arg2:x
getpriority which:@prio who:d
setpriority which:@prio who:d prio:d
sched_setparam pid:pid param:<sched_param
sched_getparam pid:pid param:>sched_param
sched_setscheduler pid:pid policy:@sched param:<sched_param
sched_getscheduler pid:pid
sched_get_priority_max policy:@sched
sched_get_priority_min policy:@sched
sched_rr_get_interval pid:pid tp:>timespec
mlock addr:x length:u
munlock addr:x length:u
mlockall flags:@mlockall
munlockall
vhangup
modify_ldt func:d ptr:<struct[2] bytecount:u
pivot_root new_root:path put_old:path
_sysctl args:*
prctl option:@prctl arg2:x arg3:x arg4:x arg5:x
arch_prctl code:@arch_prctl addr:x
adjtimex buf:<>timex
setrlimit resource:@rlimit rlim:<rlimit
chroot pathname:path
sync
acct pathname:path
settimeofday tv:<timeval tz:<timezone
mount source:path target:path type:str flags:@mount data:*
umount2 target:path flags:@umount
swapon pathname:path flags:x
swapoff pathname:path
reboot magic:x magic2:x cmd:x arg:*
sethostname name:<struct[1] len:d
setdomainname name:<struct[1] len:d
iopl level:d
ioperm from:x num:u turn_on:d
create_module name:* size:u
init_module image:* len:u params:str
delete_module name:str flags:@fd_flags
get_kernel_syms table:*
query_module name:* which:d buf:* size:u ret:*
quotactl cmd:x special:path id:d addr:*
nfsservctl cmd:d argp:* resp:*
getpmsg a:x b:x c:x d:x e:x
putpmsg a:x b:x c:x d:x e:x
afs_syscall a:x b:x c:x d:x e:x
tuxcall a:x b:x c:x
security a:x b:x c:x
gettid
readahead fd:fd offset:l count:u
setxattr pathname:path name:str value:<bytes[3] size:u flags:@xattr
lsetxattr pathname:path name:str value:<bytes[3] size:u flags:@xattr
fsetxattr fd:fd name:str value:<bytes[3] size:u flags:@xattr
getxattr pathname:path name:str value:>bytes[r] size:u
lgetxattr pathname:path name:str value:>bytes[r] size:u
fgetxattr fd:fd name:str value:>bytes[r] size:u
listxattr pathname:path list:>struct[r] size:u
llistxattr pathname:path list:>struct[r] size:u
flistxattr fd:fd list:>struct[r] size:u
removexattr pathname:path name:str
lremovexattr pathname:path name:str
fremovexattr fd:fd name:str
tkill tid:pid sig:sig
time tloc:>u64
futex uaddr:x op:@futex val:u timeout:x uaddr2:x val3:x
sched_setaffinity pid:pid cpusetsize:u mask:<struct[1]
sched_getaffinity pid:pid cpusetsize:u mask:>struct[r]
set_thread_area u_info:*
io_setup nr_events:u ctx_idp:>u64
io_destroy ctx_id:x
io_getevents ctx_id:x min_nr:l nr:l events:>io_event[r] timeout:<timespec
io_submit ctx_id:x nr:l iocbpp:<u64[1]
io_cancel ctx_id:x iocb:<iocb result:>io_event
get_thread_area u_info:*
lookup_dcookie cookie:x buf:>struct[r] len:u
epoll_create size:d
epoll_ctl_old a:x b:x c:x d:x
epoll_wait_old a:x b:x c:x d:x
remap_file_pages addr:x size:u prot:@prot pgoff:u flags:x
getdents64 fd:fd dirp:>dirent64[r] count:u
set_tid_address tidptr:x
restart_syscall
semtimedop semid:d sops:<sembuf[2] nsops:u timeout:<timespec
fadvise64 fd:fd offset:l len:u advice:@fadvise
timer_create clockid:@clock sevp:<sigevent timerid:>i32
timer_settime timerid:d flags:@timer_flags new:<itimerspec old:>itimerspec
timer_gettime timerid:d value:>itimerspec
timer_getoverrun timerid:d
timer_delete timerid:d
clock_settime clockid:@clock tp:<timespec
clock_gettime clockid:@clock tp:>timespec
clock_getres clockid:@clock res:>timespec
clock_nanosleep clockid:@clock flags:@timer_flags req:<timespec rem:>!timespec
exit_group status:d
epoll_wait epfd:fd events:>epoll_event[r] maxevents:d timeout:d
epoll_ctl epfd:fd op:@epoll_op fd:fd event:<epoll_event
tgkill tgid:pid tid:pid sig:sig
utimes pathname:path times:<timeval2
vserver a:x b:x c:x d:x e:x
mbind addr:x len:u mode:@mempolicy nodemask:* maxnode:u flags:x
set_mempolicy mode:@mempolicy nodemask:* maxnode:u
get_mempolicy mode:>i32 nodemask:* maxnode:u addr:x flags:x
mq_open name:str flags:@open mode:o attr:<mq_attr
mq_unlink name:str
mq_timedsend mqdes:fd msg:<bytes[2] len:u prio:u timeout:<timespec
mq_timedreceive mqdes:fd msg:>bytes[r] len:u prio:>u32 timeout:<timespec
mq_notify mqdes:fd sevp:<sigevent
mq_getsetattr mqdes:fd new:<mq_attr old:>mq_attr
kexec_load entry:x nr_segments:u segments:* flags:x
waitid idtype:@waitid id:pid info:>siginfo options:@wait rusage:>rusage
add_key type:str description:str payload:<bytes[3] plen:u keyring:d
request_key type:str description:str callout:str keyring:d
keyctl operation:d arg2:x arg3:x arg4:x arg5:x
ioprio_set which:d who:d ioprio:x
ioprio_get which:d who:d
inotify_init
inotify_add_watch fd:fd pathname:path mask:@inotify
inotify_rm_watch fd:fd wd:d
migrate_pages pid:pid maxnode:u old_nodes:* new_nodes:*
openat dirfd:dirfd pathname:path flags:@open mode:o
mkdirat dirfd:dirfd pathname:path mode:o
mknodat dirfd:dirfd pathname:path mode:o dev:x
fchownat dirfd:dirfd pathname:path owner:uid group:uid flags:@at
futimesat dirfd:dirfd pathname:path times:<timeval2
newfstatat dirfd:dirfd pathname:path statbuf:>stat flags:@at
unlinkat dirfd:dirfd pathname:path flags:@unlinkat
renameat olddirfd:dirfd oldpath:path newdirfd:dirfd newpath:path
linkat olddirfd:dirfd oldpath:path newdirfd:dirfd newpath:path flags:@at
symlinkat target:path newdirfd:dirfd linkpath:path
readlinkat dirfd:dirfd pathname:path buf:>struct[r] size:u
fchmodat dirfd:dirfd pathname:path mode:o
faccessat dirfd:dirfd pathname:path mode:@access
pselect6 nfds:d readfds:<>fd_set[b0] writefds:<>fd_set[b0] exceptfds:<>fd_set[b0] timeout:<>!timespec sig:<sigset_size
ppoll fds:<>pollfd[1] nfds:u timeout:<>!timespec sigmask:<sigset sigsetsize:u
unshare flags:@clone
set_robust_list head:x len:u
get_robust_list pid:pid head:>u64 len:>u64
splice fd_in:fd off_in:<u64 fd_out:fd off_out:<u64 len:u flags:@splice
tee fd_in:fd fd_out:fd len:u flags:@splice
sync_file_range fd:fd offset:l nbytes:l flags:x
vmsplice fd:fd iov:<iov[2] nr_segs:u flags:@splice
move_pages pid:pid count:u pages:* nodes:* status:* flags:x
utimensat dirfd:dirfd pathname:path times:<timespec2 flags:@at
epoll_pwait epfd:fd events:>epoll_event[r] maxevents:d timeout:d sigmask:<sigset sigsetsize:u
signalfd fd:fd mask:<sigset sizemask:u
timerfd_create clockid:@clock flags:@timerfd
eventfd count:u
fallocate fd:fd mode:@fallocate offset:l len:l
timerfd_settime fd:fd flags:@timer_flags new:<itimerspec old:>itimerspec
timerfd_gettime fd:fd value:>itimerspec
accept4 fd:fd addr:>sockaddr[*2] addrlen:<>u32 flags:@socket_type
signalfd4 fd:fd mask:<sigset sizemask:u flags:@signalfd
eventfd2 count:u flags:@eventfd
epoll_create1 flags:@epoll_create
dup3 oldfd:fd newfd:fd flags:@fd_flags
pipe2 fds:>pair flags:@fd_flags
inotify_init1 flags:@signalfd
preadv fd:fd iov:>iov[2] iovcnt:u pos_l:l pos_h:x
pwritev fd:fd iov:<iov[2] iovcnt:u pos_l:l pos_h:x
rt_tgsigqueueinfo tgid:pid tid:pid sig:sig info:<siginfo
perf_event_open attr:<perf_event_attr pid:pid cpu:d group_fd:fd flags:x
recvmmsg fd:fd msgvec:>mmsghdr[r] vlen:u flags:@msg timeout:<>timespec
fanotify_init flags:x event_f_flags:@open
fanotify_mark fd:fd flags:x mask:x dirfd:dirfd pathname:path
prlimit64 pid:pid resource:@rlimit new:<rlimit old:>rlimit
name_to_handle_at dirfd:dirfd pathname:path handle:<>file_handle mount_id:>i32 flags:@at
open_by_handle_at mount_fd:fd handle:<file_handle flags:@open
clock_adjtime clockid:@clock buf:<>timex
syncfs fd:fd
sendmmsg fd:fd msgvec:<mmsghdr[2] vlen:u flags:@msg
setns fd:fd nstype:@clone
getcpu cpu:>u32 node:>u32 cache:*
process_vm_readv pid:pid local_iov:>iov[2] liovcnt:u remote_iov:<iovec[4] riovcnt:u flags:x
process_vm_writev pid:pid local_iov:<iov[2] liovcnt:u remote_iov:<iovec[4] riovcnt:u flags:x
kcmp pid1:pid pid2:pid type:d idx1:u idx2:u
finit_module fd:fd params:str flags:x
sched_setattr pid:pid attr:<struct[=48] flags:x
sched_getattr pid:pid attr:>struct[2] size:u flags:x
renameat2 olddirfd:dirfd oldpath:path newdirfd:dirfd newpath:path flags:@rename
seccomp operation:@seccomp flags:x args:*
getrandom buf:>bytes[r] buflen:u flags:@getrandom
memfd_create name:str flags:@memfd
kexec_file_load kernel_fd:fd initrd_fd:fd cmdline_len:u cmdline:* flags:x
bpf cmd:@bpf attr:<struct[2] size:u
execveat dirfd:dirfd pathname:path argv:words envp:words flags:@at
userfaultfd flags:@fd_flags
membarrier cmd:@membarrier flags:x cpu_id:d
mlock2 addr:x length:u flags:x
copy_file_range fd_in:fd off_in:<u64 fd_out:fd off_out:<u64 len:u flags:x
preadv2 fd:fd iov:>iov[2] iovcnt:u pos_l:l pos_h:x flags:@rwf
pwritev2 fd:fd iov:<iov[2] iovcnt:u pos_l:l pos_h:x flags:@rwf
pkey_mprotect addr:x length:u prot:@prot pkey:d
pkey_alloc flags:x access_rights:x
pkey_free pkey:d
statx dirfd:dirfd pathname:path flags:@at mask:@statx statxbuf:>statx
io_pgetevents ctx_id:x min_nr:l nr:l events:>io_event[r] timeout:<timespec sig:*
rseq rseq:x rseq_len:u flags:x sig:x
uretprobe
uprobe
pidfd_send_signal pidfd:fd sig:sig info:<siginfo flags:x
io_uring_setup entries:u params:<>io_uring_params
io_uring_enter fd:fd to_submit:u min_complete:u flags:@io_uring_enter arg:* argsz:u
io_uring_register fd:fd opcode:d arg:* nr_args:u
open_tree dirfd:dirfd pathname:path flags:@at
move_mount from_dirfd:dirfd from_path:path to_dirfd:dirfd to_path:path flags:x
fsopen fsname:str flags:x
fsconfig fd:fd cmd:d key:str value:* aux:d
fsmount fd:fd flags:x attr_flags:x
fspick dirfd:dirfd pathname:path flags:x
pidfd_open pid:pid flags:@fd_flags
clone3 args:<struct[1] size:u
close_range first:u last:u flags:@close_range
openat2 dirfd:dirfd pathname:path how:<open_how size:u
pidfd_getfd pidfd:fd targetfd:d flags:x
faccessat2 dirfd:dirfd pathname:path mode:@access flags:@at
process_madvise pidfd:fd iov:<iovec[2] vlen:u advice:@madvise flags:x
epoll_pwait2 epfd:fd events:>epoll_event[r] maxevents:d timeout:<timespec sigmask:<sigset sigsetsize:u
mount_setattr dirfd:dirfd pathname:path flags:@at attr:<struct[4] size:u
quotactl_fd fd:fd cmd:x id:d addr:*
landlock_create_ruleset attr:<struct[1] size:u flags:x
landlock_add_rule ruleset_fd:fd rule_type:d rule_attr:* flags:x
landlock_restrict_self ruleset_fd:fd flags:x
memfd_secret flags:@fd_flags
process_mrelease pidfd:fd flags:x
futex_waitv waiters:<futex_waitv[1] nr_futexes:u flags:x timeout:<timespec clockid:@clock
set_mempolicy_home_node start:x len:u home_node:u flags:x
cachestat fd:fd range:<cachestat_range cstat:>cachestat flags:x
fchmodat2 dirfd:dirfd pathname:path mode:o flags:@at
map_shadow_stack addr:x size:u flags:x
futex_wake uaddr:x mask:x nr:d flags:x
futex_wait uaddr:x val:x mask:x flags:x timeout:<timespec clockid:@clock
futex_requeue waiters:<futex_waitv flags:x nr_wake:d nr_requeue:d
statmount req:<mnt_id_req buf:>struct[2] bufsize:u flags:x
listmount req:<mnt_id_req ids:>u64[r] count:u flags:x
lsm_get_self_attr attr:u ctx:* size:<>u32 flags:x
lsm_set_self_attr attr:u ctx:<struct[2] size:u flags:x
lsm_list_modules ids:* size:<>u32 flags:x
mseal addr:x length:u flags:x
setxattrat dirfd:dirfd pathname:path flags:@at name:str args:<struct[5] size:u
getxattrat dirfd:dirfd pathname:path flags:@at name:str args:<struct[5] size:u
listxattrat dirfd:dirfd pathname:path flags:@at list:>struct[r] size:u
removexattrat dirfd:dirfd pathname:path flags:@at name:str
open_tree_attr dirfd:dirfd pathname:path flags:@at attr:<struct[4] size:u
file_getattr dirfd:dirfd pathname:path attr:>struct[3] size:u flags:@at
file_setattr dirfd:dirfd pathname:path attr:<struct[3] size:u flags:@at
"""

FD_RESULTS = frozenset((
    "open", "openat", "openat2", "creat", "dup", "dup2", "dup3", "socket", "accept", "accept4", "epoll_create",
    "epoll_create1", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create", "inotify_init", "inotify_init1",
    "fanotify_init", "memfd_create", "memfd_secret", "pidfd_open", "pidfd_getfd", "perf_event_open",
    "open_by_handle_at", "mq_open", "userfaultfd", "io_uring_setup", "open_tree", "open_tree_attr", "fsopen", "fsmount",
    "fspick", "landlock_create_ruleset"))
"""Calls whose result is a descriptor; that of fcntl is one when it duplicates."""

FD_OPENERS = FD_RESULTS | {"pipe", "pipe2", "socketpair"}
"""Calls that open descriptors."""

FD_CLOSERS = frozenset(("close", "close_range"))

WRITES = frozenset(("write", "writev", "pwrite64", "pwritev", "pwritev2"))
"""Calls that write a file's data."""


class Capture(IntEnum):
    """How memory is captured: `enum ptw_capture` of wrapper/bpf/record.h."""

    NONE = 0
    PATH = 1
    STRING = 2
    STRUCT = 3
    BUFFER = 4
    VECTOR = 5
    MESSAGE = 6
    WORDS = 7
    STACK = 8
    MESSAGES = 9


class Part(IntEnum):
    """Which part of a vector or message a capture is: `enum ptw_part`. Of the message n of several: PARTS * n more."""

    ITSELF = 0
    DATA = 1
    ADDRESS = 2
    CONTROL = 3


PARTS = 4
"""Parts a message has: PTW_PARTS."""


class When(IntEnum):
    """When it was captured: `enum ptw_when`."""

    ENTER = 0
    EXIT = 1


class Count(IntEnum):
    """What says how many units there are: `enum ptw_count`."""

    ONE = 0
    ARGUMENT = 1
    RESULT = 2
    POINTED = 3
    BITS = 4


@dataclass(frozen=True)
class Argument:
    """An argument of a call: `kind` as in the table, without what says how memory is captured, which the rest does."""

    name: str
    kind: str
    capture: Capture = Capture.NONE
    at_enter: bool = False
    at_exit: bool = False
    at_failure: bool = False
    unit: int = 0
    count: Count = Count.ONE
    which: int = 0


@dataclass(frozen=True)
class Signature:
    """A call's arguments, in order."""

    name: str
    arguments: tuple[Argument, ...] = field(default=())


_MEMORY = re.compile(r"(?P<way><>|<|>)(?P<failure>!?)(?P<type>\w+)(?:\[(?P<count>[^]]+)\])?")
_CAPTURES = {"bytes": Capture.BUFFER, "iov": Capture.VECTOR, "msg": Capture.MESSAGE,
             "mmsghdr": Capture.MESSAGES}


def _argument(text: str) -> Argument:
    name, kind = text.split(":")
    if kind in ("path", "str", "words"):
        capture = {"path": Capture.PATH, "str": Capture.STRING, "words": Capture.WORDS}[kind]
        return Argument(name, kind, capture, at_enter=True, unit=1)
    found = _MEMORY.fullmatch(kind)
    if found is None:
        return Argument(name, kind)
    type_, many = found["type"], found["count"] or ""
    capture = _CAPTURES.get(type_, Capture.STRUCT)
    unit = STRUCTURES[type_] if capture is Capture.STRUCT else 1
    count, which = Count.ONE, 0
    if many == "r":
        count = Count.RESULT
    elif many.startswith("*"):
        count, which = Count.POINTED, int(many[1:])
    elif many.startswith("b"):
        count, which = Count.BITS, int(many[1:])
    elif many.startswith("="):
        unit = int(many[1:])
    elif many:
        count, which = Count.ARGUMENT, int(many)
    return Argument(name, type_, capture, "<" in found["way"], ">" in found["way"], bool(found["failure"]), unit,
                    count, which)


def _parse() -> dict[int, Signature]:
    signatures = {}
    for line in _CALLS.strip().splitlines():
        name, *arguments = line.split()
        signatures[syscall_table.NUMBERS[name]] = Signature(name, tuple(_argument(one) for one in arguments))
    return signatures


SIGNATURES: dict[int, Signature] = _parse()
"""Every call's arguments, by its number."""

NUMBERS = 512
"""Call numbers below this have a description (`enum ptw_limit`)."""

_HEAD = struct.Struct("<8B")
_ARGUMENT = struct.Struct("<4B2H")
_ARGUMENTS = 6


_QUICK = 2  # PTW_QUICK


def _quick(signature: Signature) -> bool:
    """Whether what is captured of a call fits beside its task's state: `quick` of `struct ptw_description`."""
    captured = [one for one in signature.arguments if one.at_enter or one.at_exit]
    return (bool(captured) and sum(one.at_enter + one.at_exit for one in captured) <= _QUICK
            and all(one.capture in (Capture.STRUCT, Capture.BUFFER) for one in captured))


def descriptions() -> bytes:
    """All signatures as the BPF programs take them: 512 of `struct ptw_description` (wrapper/bpf/record.h)."""
    packed = bytearray(NUMBERS * (_HEAD.size + _ARGUMENTS * _ARGUMENT.size))
    for number, signature in SIGNATURES.items():
        at = number * (_HEAD.size + _ARGUMENTS * _ARGUMENT.size)
        arguments = signature.arguments
        bits = {what: sum(1 << i for i, one in enumerate(arguments) if getattr(one, what))
                for what in ("at_enter", "at_exit", "at_failure")}
        fds = sum(1 << i for i, one in enumerate(arguments) if one.kind in ("fd", "dirfd"))
        operation = 1 if signature.name in FD_OPENERS else 2 if signature.name in FD_CLOSERS else 0
        _HEAD.pack_into(packed, at, bits["at_enter"], bits["at_exit"], bits["at_failure"], fds,
                        signature.name in FD_RESULTS, operation, signature.name in WRITES, _quick(signature))
        for i, one in enumerate(arguments):
            _ARGUMENT.pack_into(packed, at + _HEAD.size + i * _ARGUMENT.size, one.capture, one.count, one.which, 0,
                                one.unit, 0)
    return bytes(packed)
