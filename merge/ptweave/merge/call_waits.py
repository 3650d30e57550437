# SPDX-License-Identifier: MIT
"""Waits in system calls that another thread of the run ended: a child's end, bytes put into a pipe, a lock given back.

Nothing of that is logged: it follows from the calls, their times and results, and the names that the kernel has for
what descriptors refer to. Where one of these is not known, or who ended the wait is not of the run, there is no row.
"""

from __future__ import annotations


def _texts(*words: str) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _number(data: str, at: int) -> str:
    """The 32-bit number at an offset of captured memory."""
    parts = " || ".join(f"substr(hex({data}), {2 * (at + place) + 1}, 2)" for place in (3, 2, 1, 0))
    return f"try_cast('0x' || {parts} as bigint)"


def _kept(argument: int, when: int) -> str:
    """What was kept of an argument's memory when the call began (0) or returned (1)."""
    return f'list_filter(data, lambda one: one.argument = {argument} and one."when" = {when})[1].data'


_SIGNED = "((args[1] & 4294967295)::bigint - ((args[1] & 2147483648)::bigint << 1))"
"""The first argument as an int."""

_READS = ("read", "readv", "preadv2", "recvfrom", "recvmsg")
_WRITES = ("write", "writev", "pwritev2", "sendto", "sendmsg")
_POLLS = ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2")
_LOCKING = "(6, 7, 37, 38)"  # fcntl: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
_LOCKING_WAITS = "(7, 38)"

_WAITING = _texts(
    *_READS, *_WRITES, *_POLLS, "pread64", "preadv", "pwrite64", "pwritev", "recvmmsg", "sendmmsg", "accept", "accept4",
    "connect", "sendfile", "splice", "tee", "vmsplice", "copy_file_range", "wait4", "waitid", "vfork", "nanosleep",
    "clock_nanosleep", "pause", "rt_sigsuspend", "rt_sigtimedwait", "flock", "semop", "semtimedop", "msgsnd", "msgrcv",
    "mq_timedsend", "mq_timedreceive", "io_getevents", "io_pgetevents", "io_uring_enter", "fsync", "fdatasync", "sync",
    "syncfs", "sync_file_range", "msync")

MAY_WAIT = (f"(name in ({_WAITING}) or (name = 'fcntl' and args[2] in {_LOCKING_WAITS}) or "
            "(name = 'futex' and args[2] & 127 in (0, 6, 9, 11, 13)))")
"""Of rows of `syscalls`: those in which a thread may wait for something else than the kernel's own work."""

_ENDS = f"""
ends as (
  select gone.*, coalesce(threads.t_start, 0) as since from (
    select pid, thread, t_enter as t, true as told from syscalls where name = 'exit_group' and thread is not null
    union all
    select pid, arg_max(thread, t_end), max(t_end), false from threads
    where t_end is not null and not own and pid not in (
      select pid from syscalls where name = 'exit_group' and thread is not null and pid is not null)
    group by pid) as gone left join threads using (thread)),
makers as (
  select distinct child.pid, maker.pid as parent from threads as child join threads as maker
    on maker.thread = child.parent and maker.pid <> child.pid),
kills as (
  select abs({_SIGNED}) as pid, thread, t_enter as t, args[case name when 'tgkill' then 3 else 2 end]::bigint as signal
  from syscalls where name in ('kill', 'tgkill') and result = 0 and thread is not null),"""
"""When processes ended, or were made to end, and by which thread. Of one that did not say so itself (`told`), it may
have been later or earlier than its record has it."""

_CHILDREN = f"""
reaped as (
  select thread, t_enter, t_exit, name, result::bigint as child, {_number(_kept(1, 1), 0)} as status
  from syscalls where name = 'wait4' and result > 0 and t_exit is not null
  union all
  select thread, t_enter, t_exit, name, {_number("info", 16)}, case when {_number("info", 8)} = 1 then 0
           when {_number("info", 8)} in (2, 3) then {_number("info", 24)} else 127 end
  from (select *, {_kept(2, 1)} as info from syscalls where name = 'waitid' and result = 0 and t_exit is not null)),
dead as (
  select *, coalesce(status & 127, 9) as signal from reaped
  where status is null or (status & 127 <> 127 and status <> 65535)),
children as (
  select dead.thread, dead.t_enter, dead.t_exit, dead.name,
         kills.t is not null and not coalesce(told and ends.t < kills.t, false) as killed,
         if(killed, kills.t, least(ends.t, dead.t_exit)) as released, if(killed, kills.thread, ends.thread) as by_thread
  from dead asof left join kills
    on kills.pid = dead.child and kills.signal = dead.signal and dead.t_exit >= kills.t
  asof left join ends on ends.pid = dead.child and dead.t_exit >= ends.since),
execs as (
  select pid, thread, t_enter, coalesce(t_exit, t_enter) as t from syscalls
  where name in ('execve', 'execveat') and coalesce(result, 0) = 0 and thread is not null),
parting as (
  select thread, t_enter, t_exit, name, result::bigint as child from syscalls
  where result > 0 and t_exit is not null and (name = 'vfork' or (name = 'clone' and args[1] & 16384 <> 0)
    or (name = 'clone3' and {_number(_kept(0, 0), 0)} & 16384 <> 0))),
parted as (
  select parting.thread, parting.t_enter, parting.t_exit, name, min(least(step.t, parting.t_exit)) as released,
         arg_min(step.thread, step.t) as by_thread
  from parting join (select pid, thread, t_enter, t from execs union all select pid, thread, t, t from ends) as step
    on step.pid = child and step.t_enter between parting.t_enter and parting.t_exit
  group by all),"""
"""A child that a thread of the run killed ended when it was killed: by SIGKILL, if nobody asked by what. Who makes one
by vfork waits until it executes another program, or ends."""

_SIGNALS = """
interrupted as (
  select thread, pid, t_enter, t_exit, name, case when result > 0 then result end as signal from syscalls
  where t_exit is not null and ((name = 'rt_sigtimedwait' and result > 0)
    or result = -4 or result between -516 and -512)),
told as (
  select interrupted.thread, t_enter, t_exit, name, max(sign.t) as released, arg_max(sign.thread, sign.t) as by_thread
  from interrupted join (
    select pid, signal, thread, t from kills
    union all
    select parent, 17, ends.thread, ends.t from ends join makers using (pid)) as sign
    on sign.pid = interrupted.pid and sign.signal = coalesce(interrupted.signal, sign.signal)
      and sign.t > t_enter and sign.t <= t_exit
  group by all),"""
"""Waits that a signal ended: one that a thread of the run sent, or that of a child's end."""

_EVENT = "anon_inode:[eventfd]"

_MOVES = f"""
pairs as (
  select pid, t_exit, {_number("fds", 0)} as one, {_number("fds", 4)} as other
  from (select *, {_kept(3, 1)} as fds from syscalls where name = 'socketpair' and result = 0)),
sockets as (
  select pid, args[1]::bigint as number, files[1] as name, t_enter from syscalls where files[1] like 'socket:[%'),
met as (
  select pid, number, name, t_enter from sockets
  union all select parent, number, name, t_enter from sockets join makers using (pid)),
ones as (select pairs.*, met.name as one_name from pairs asof join met
  on met.pid = pairs.pid and met.number = pairs.one and met.t_enter >= pairs.t_exit),
both_ends as (select ones.one_name, met.name as other_name from ones asof join met
  on met.pid = ones.pid and met.number = ones.other and met.t_enter >= ones.t_exit),
peers as (
  select one_name as name, other_name as peer from both_ends where one_name <> other_name
  union select other_name, one_name from both_ends where one_name <> other_name),
moving as (
  select thread, pid, t_enter, t_exit, name, name in ({_texts(*_READS)}) as incoming, result as size, args[1] as number,
         files[1] as file
  from syscalls where name in ({_texts(*_READS, *_WRITES)}) and (name <> 'read' or args[3] > 0)
  union all
  select thread, pid, t_enter, t_exit, name, true, result, args[1], files[1] from syscalls where name = 'splice'
  union all
  select thread, pid, t_enter, t_exit, name, false, result, args[2], files[case name when 'sendfile' then 1 else 2 end]
  from syscalls where name in ('splice', 'tee', 'sendfile')),
moves as (
  select moving.* exclude (file), case when file = '{_EVENT}' then concat_ws(' ', file, pid, number)
    when file like 'pipe:[%' or incoming then file else peer end as stream
  from moving left join peers on peers.name = file
  where thread is not null and t_exit is not null and size >= 0
    and (file like 'pipe:[%' or file = '{_EVENT}' or peer is not null)),
sent as (
  select *, sum(size) over (partition by stream order by t_enter, t_exit, thread) as end_at
  from moves where not incoming and size > 0),
taken as (
  select *, sum(size) over (partition by stream order by t_exit, t_enter, thread) - size as begin_at,
         stream like 'anon%' as event from moves where incoming),"""
"""What went through pipes, both ends of socket pairs and event descriptors: these by their number in a program, the
others by the kernel's name. A socket's name is met when its number is used first, by the program that made it, or its
child."""

_STREAMS = f"""
fed as (
  select taken.*, sent.thread as by_thread, sent.t_enter as released
  from taken asof left join sent on sent.stream = taken.stream and taken.begin_at < sent.end_at
  where taken.size > 0 and not event),
broken as (select distinct stream from fed where released is null or released > t_exit),
holding as (
  select distinct pid, unnest(files) as stream from syscalls where list_has_any(files, (
    select coalesce(list(distinct stream), []) from taken where size = 0 and not event))),
leavings as (
  select coalesce(peer, files[1]) as stream, pid, thread, t_enter as t from syscalls
  left join peers on peers.name = files[1] where syscalls.name = 'close' and thread is not null
  union all
  select files[2], pid, thread, t_enter from syscalls where name in ('dup2', 'dup3') and thread is not null
  union all
  select coalesce(peer, stream), pid, thread, t from holding left join peers on peers.name = stream join (
    select pid, thread, t from ends union all select pid, thread, t from execs) as gone using (pid)),
finished as (
  select taken.*, arg_max(leavings.thread, leavings.t) as by_thread, max(leavings.t) as released
  from taken join leavings on leavings.stream = taken.stream and leavings.thread <> taken.thread
    and leavings.t <= taken.t_exit
  where size = 0 and not event group by all),
feeds as (
  select thread, t_enter, t_exit, name, stream, released, by_thread from fed anti join broken using (stream)
  union all select thread, t_enter, t_exit, name, stream, released, by_thread from finished),
signalled as (
  select taken.thread, taken.t_enter, taken.t_exit, taken.name, sent.t_enter as released, sent.thread as by_thread
  from taken asof join sent on sent.stream = taken.stream and taken.t_enter < sent.t_enter where event),
polls as (
  select thread, t_enter, t_exit, name, result, lead(t_enter) over (partition by thread order by t_enter) as following
  from syscalls where name in ({_texts(*_POLLS)}) and thread is not null),
readable as (
  select polls.thread, polls.t_enter, polls.t_exit, polls.name, stream, taken.t_enter as read_at, event
  from polls asof join taken on taken.thread = polls.thread and polls.t_exit <= taken.t_enter
  where polls.result > 0 and taken.t_enter < coalesce(following, taken.t_enter + 1)),
polled as (
  select readable.thread, readable.t_enter, readable.t_exit, readable.name, feeds.released, feeds.by_thread
  from readable join feeds on feeds.thread = readable.thread and feeds.t_enter = read_at where not event
  union all
  select readable.thread, readable.t_enter, readable.t_exit, readable.name, sent.t_enter, sent.thread
  from readable asof join sent on sent.stream = readable.stream and readable.t_enter < sent.t_enter where event),"""
"""The bytes of a stream come out in the order in which they were put in, so the write that a read's first byte came
with is known by counting; where more came out of one than went in, others write to it, too (`broken`): nothing is said
of it. An event descriptor is emptied by a read: what ends a wait for it is the first write after that began. The end of
a pipe or socket pair is read when the last one that had its other end closed it, ended, or executed another program.
What a thread that polled reads next is what it waited for."""

_LOCKS = f"""
locking as (
  select thread, pid, t_enter, t_exit, name, files[1] as file,
         case name when 'flock' then args[2] & 8 = 0 else args[2] in {_LOCKING} end as takes,
         case name when 'flock' then args[2] & 12 = 0 else args[2] in {_LOCKING_WAITS} end as waits
  from syscalls where name in ('flock', 'fcntl') and result = 0 and t_exit is not null and files[1] is not null
    and (name = 'flock' or args[2] in {_LOCKING}) and thread is not null),
locked as (select pid, file, min(t_exit) as since from locking where takes group by pid, file),
unlocking as (
  select locking.pid, locking.file, thread, t_enter as t, false as ended from locking where name = 'fcntl' or not takes
  union all
  select pid, files[1], thread, t_enter, false from syscalls where name = 'close' and thread is not null
  union all
  select ends.pid, locked.file, ends.thread, ends.t, true from ends join locked on locked.pid = ends.pid),
given_back as (
  select locking.thread, locking.t_enter, locking.t_exit, locking.name, unlocking.pid,
         coalesce(max(unlocking.t) filter (not ended), max(unlocking.t)) as released,
         coalesce(arg_max(unlocking.thread, unlocking.t) filter (not ended),
                  arg_max(unlocking.thread, unlocking.t)) as by_thread
  from locking join unlocking on unlocking.file = locking.file and unlocking.thread <> locking.thread
    and unlocking.t > locking.t_enter and unlocking.t <= locking.t_exit
  join locked on locked.pid = unlocking.pid and locked.file = unlocking.file and unlocking.t > locked.since
  where locking.waits group by all),
unlocked as (
  select thread, t_enter, t_exit, name, max(released) as released, arg_max(by_thread, released) as by_thread
  from given_back group by all),"""
"""A lock on a file is given back by who has had it, with a call or by closing the file, or, if that did not, ends."""

_FUTEXES = """
woken as (
  select asleep.thread, asleep.t_enter, asleep.t_exit, asleep.name, max(wakes.t_enter) as released,
         arg_max(wakes.thread, wakes.t_enter) as by_thread
  from syscalls as asleep join syscalls as wakes on wakes.pid = asleep.pid and wakes.args[1] = asleep.args[1]
    and wakes.t_enter > asleep.t_enter and wakes.t_enter <= asleep.t_exit
  where asleep.name = 'futex' and asleep.args[2] & 127 in (0, 9) and asleep.result = 0
    and wakes.name = 'futex' and wakes.args[2] & 127 in (1, 3, 4, 5, 10) and wakes.result > 0 group by all),"""
"""Futexes of the program's own; those of operations are part of these."""

WAITS = f"""
with {_ENDS}{_CHILDREN}{_SIGNALS}{_MOVES}{_STREAMS}{_LOCKS}{_FUTEXES}
found as (
  select * exclude (killed) from children
  union all from parted union all from told union all from polled union all from signalled
  union all from unlocked union all from woken
  union all select thread, t_enter, t_exit, name, released, by_thread from feeds)
select thread, t_enter, t_exit, arg_max(name, released) as name, max(released)::bigint as released,
       arg_max(by_thread, released)::integer as by_thread
from found where released > t_enter and released <= t_exit and by_thread <> thread and thread is not null
group by thread, t_enter, t_exit order by thread, t_enter, t_exit"""
"""Calls in which a thread waited for what another did: when that was (`released`), and which thread it was."""

CALLS = f"""
with ended as ({WAITS})
select called.name as operation, called.thread, called.t_enter as t, called.t_exit - called.t_enter as wait_ns,
       files[1] as file, by_thread, start_function as by_function, released
from (from syscalls where {MAY_WAIT}) as called
asof left join (
  select thread, t, max(t + coalesce(wait, 0)) over (partition by thread order by thunk) as finished
  from thunks) as step
  on step.thread = called.thread and called.t_enter >= step.t
left join ended on ended.thread = called.thread and ended.t_enter = called.t_enter and ended.t_exit = called.t_exit
left join threads on threads.thread = by_thread
where called.t_enter >= coalesce(step.finished, called.t_enter)
order by wait_ns desc nulls last, t, called.thread"""
"""Calls that may wait, longest first, but for those that are part of an operation."""
