/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What descriptors refer to, as ids: an id stands for a file by its name, and is defined once, in a record that goes
 * before the first that has it.
 *
 * A name is told from others by the addresses of its directory entry, inode and mount, the inode's number, the
 * entry's sequence count (it changes when the entry is renamed or deleted), the hash of its name (a new file may get
 * the memory of a deleted one's entry and inode, its number, and the count) and the file's operations (anonymous inodes
 * are all one inode). A rename of a directory above is not seen: the name stays the one first told.
 */
#ifndef PTW_FILES_BPF_H
#define PTW_FILES_BPF_H

#include "common.bpf.h"

enum files_limit {
	FILES = 1 << 14,	/* ids that are remembered; those not used for longest are defined again */
	COMPONENTS = 128,	/* of a path */
	COMPONENT_SIZE = 256,	/* NAME_MAX and a NUL */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FILES);
	__type(key, struct ptw_file_key);
	__type(value, __u64);
} files SEC(".maps");

__u64 last_file;

/* A record of a name while it is written: it goes into the ring as long as it is. Only tasks that meet names have one. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ptw_file);
} drafts SEC(".maps");

/* Since Linux 6.2: an address as a typed pointer, whose fields are then read by plain loads (a fault reads 0). */
extern void *bpf_rdonly_cast(void *address, __u32 type) __ksym __weak;

/* Such a pointer where it can be had, else the address itself; and a field behind it. */
#define TYPED_POINTER(type, address) \
	((struct type *)(bpf_rdonly_cast ? bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)) \
					 : (void *)(address)))
#define LOAD(pointer, field) (bpf_rdonly_cast ? (pointer)->field : BPF_CORE_READ(pointer, field))

/*
 * Write the components of a path into `to`, each with its NUL, the last one first; `*size` gets their bytes. Returns 1
 * when there was no room for all. `size` is in memory the verifier knows nothing of: else each step is a case of its
 * own to it.
 */
static __always_inline __u32 walk_path(struct dentry *dentry, struct vfsmount *vfsmount, char *to, __u64 room,
				       __u32 *size)
{
	struct mount *mount = TYPED_POINTER(mount, (void *)vfsmount - __builtin_preserve_field_info(
							    ((struct mount *)0)->mnt, BPF_FIELD_BYTE_OFFSET));
	dentry = TYPED_POINTER(dentry, dentry);
	*size = 0;
	for (int i = 0; i < COMPONENTS; i++) {
		struct dentry *parent = LOAD(dentry, d_parent);
		__u64 used;
		long length;

		if (dentry == LOAD(mount, mnt.mnt_root) || dentry == parent) {
			struct mount *above = LOAD(mount, mnt_parent);

			if (above == mount || !above || dentry != LOAD(mount, mnt.mnt_root))
				return 0;
			dentry = LOAD(mount, mnt_mountpoint);
			mount = above;
			continue;
		}
		used = *size;
		KEEP(used);
		if (used > room - COMPONENT_SIZE)
			break;
		length = bpf_probe_read_kernel_str(to + used, COMPONENT_SIZE, LOAD(dentry, d_name.name));
		if (length <= 0)
			break;
		*size = used + length;
		dentry = parent;
	}
	return 1;
}

/* The task's open file behind a descriptor; NULL when there is none. The task is typed: plain loads do. */
static __always_inline struct file *open_file(struct task_struct *task, __u32 fd)
{
	struct files_struct *open = task->files;
	struct fdtable *table;
	struct file *file = 0;

	if (!open)
		return 0;
	table = open->fdt;
	if (!table || fd >= table->max_fds)
		return 0;
	if (bpf_rdonly_cast) {	/* any type of the kernel that begins with a pointer */
		struct list_head *slot = bpf_rdonly_cast(table->fd + fd, bpf_core_type_id_kernel(struct list_head));

		return (struct file *)slot->next;
	}
	if (bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd))
		return 0;
	return file;
}

/* What tells an open file's name from others. */
static __always_inline void fill_key(struct ptw_file_key *key, struct file *address)
{
	struct dentry *dentry;
	struct inode *inode;

	if (bpf_rdonly_cast) {
		struct file *file = bpf_rdonly_cast(address, bpf_core_type_id_kernel(struct file));

		dentry = file->f_path.dentry;
		inode = file->f_inode;
		key->mount = (__u64)file->f_path.mnt;
		key->operations = (__u64)file->f_op;
		key->number = inode->i_ino;
		key->sequence = dentry->d_seq.seqcount.sequence;
		key->name = dentry->d_name.hash;
	} else {
		dentry = BPF_CORE_READ(address, f_path.dentry);
		inode = BPF_CORE_READ(address, f_inode);
		key->mount = (__u64)BPF_CORE_READ(address, f_path.mnt);
		key->operations = (__u64)BPF_CORE_READ(address, f_op);
		key->number = BPF_CORE_READ(inode, i_ino);
		key->sequence = BPF_CORE_READ(dentry, d_seq.seqcount.sequence);
		key->name = BPF_CORE_READ(dentry, d_name.hash);
	}
	key->dentry = (__u64)dentry;
	key->inode = (__u64)inode;
}

static __always_inline void fill_key_of_folder(struct ptw_file_key *key, struct fs_struct *fs)
{
	struct dentry *dentry = fs->pwd.dentry;
	struct inode *inode = dentry->d_inode;

	key->dentry = (__u64)dentry;
	key->inode = (__u64)inode;
	key->mount = (__u64)fs->pwd.mnt;
	key->number = inode->i_ino;
	key->sequence = dentry->d_seq.seqcount.sequence;
	key->name = dentry->d_name.hash;
}

/* A name that was not met before: its id, 0 when its record could not be stored. */
static __always_inline __u64 define_file(struct ptw_file_key *key, struct task_struct *task)
{
	struct ptw_file *record = bpf_task_storage_get(&drafts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct dentry *dentry = TYPED_POINTER(dentry, key->dentry);
	struct inode *inode = TYPED_POINTER(inode, key->inode);
	struct file_system_type *type;
	struct super_block *block;
	__u64 id, size;

	if (!record) {
		__sync_fetch_and_add(&losses.files, 1);
		return 0;
	}
	id = __sync_fetch_and_add(&last_file, 1) + 1;
	record->head.kind = PTW_RECORD_FILE;
	record->t = bpf_ktime_get_ns();
	record->id = id;
	record->inode = key->number;
	block = LOAD(inode, i_sb);
	type = LOAD(block, s_type);
	record->device = LOAD(block, s_dev);
	record->mode = LOAD(inode, i_mode);
	record->deleted = !LOAD(dentry, d_hash.pprev);
	__builtin_memset(record->filesystem, 0, sizeof(record->filesystem));
	bpf_probe_read_kernel_str(record->filesystem, sizeof(record->filesystem), LOAD(type, name));
	record->head.flags = walk_path(dentry, (void *)key->mount, record->components, sizeof(record->components),
				       &record->size);
	if (!record->size) {	/* the root, "/", or a file of its own (memfd, eventfd) that has a name all the same */
		long named = bpf_probe_read_kernel_str(record->components, COMPONENT_SIZE, LOAD(dentry, d_name.name));

		record->size = named > 0 ? named : 0;
	}
	size = record->size;
	KEEP(size);
	if (size > sizeof(record->components))
		size = sizeof(record->components);
	if (bpf_ringbuf_output(&ring, record, PTW_FILE_HEAD + size, wake_flags())) {
		__sync_fetch_and_add(&losses.files, 1);
		return 0;
	}
	bpf_map_update_elem(&files, key, &id, BPF_ANY);
	return id;
}

static __always_inline int same_file(const struct ptw_file_key *one, const struct ptw_file_key *other)
{
	return one->dentry == other->dentry && one->sequence == other->sequence && one->inode == other->inode &&
	       one->mount == other->mount && one->operations == other->operations && one->number == other->number &&
	       one->name == other->name;
}

/*
 * The id of what a descriptor refers to, or of the working directory (AT_FDCWD); 0 when it is not open. The task
 * remembers those it used last: to find one among all costs the hash of its key.
 */
__noinline __u64 file_of(struct ptw_task *state, __u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ptw_file_key key = {};
	struct ptw_seen_file *seen;
	__u64 *known;

	if (!state)
		return 0;
	if (fd == (__u32)AT_FDCWD) {
		struct fs_struct *fs = task->fs;

		if (!fs)
			return 0;
		fill_key_of_folder(&key, fs);
	} else {
		struct file *file = open_file(task, fd);

		if (!file)
			return 0;
		fill_key(&key, file);
	}
	seen = &state->seen[fd & (PTW_SEEN - 1)];
	if (seen->id && same_file(&seen->key, &key))
		return seen->id;
	known = bpf_map_lookup_elem(&files, &key);
	seen->id = known ? *known : define_file(&key, task);
	seen->key = key;
	return seen->id;
}

#endif
